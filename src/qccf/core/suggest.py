"""What a mistyped name was probably meant to be."""

import difflib
from collections.abc import Iterable

SHORTEST = 4
"""Shorter words are alike by chance, unless they have the same letters."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, or None if none or several are.

    Capitals do not matter, nor `_` instead of `-`.
    """
    spellings = {_plain(one): one for one in known}
    found = difflib.get_close_matches(_plain(name), spellings, n=2)
    alike = [difflib.SequenceMatcher(None, _plain(name), one).ratio() for one in found]
    return spellings[found[0]] if found and (len(found) == 1 or alike[0] > alike[1]) else None


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "did you mean x?", or "choose one of x, y."."""
    names = list(known)
    found = closest(name, names)
    if found and len(name) < SHORTEST and not set(_plain(name)) <= set(_plain(found)):
        found = None
    return f"did you mean {found}?" if found else f"choose one of {', '.join(names)}."


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
