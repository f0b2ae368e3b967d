"""Named entries of one kind (policies, codecs, datasets, models, path losses), and how a name becomes an entry.

An entry is one line: its name and either the object itself or "module:attribute", which is imported on first use. A
user's own entry needs no line: its name is "module:attribute", importable from the current folder.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from qccf.core.errors import ConfigError
from qccf.core.suggest import closest

T = TypeVar("T")

_LOADED: dict[str, list[tuple[str, str]]] = {}
_UNTRUSTED: list[str] = []


class Registry(MutableMapping[str, T]):
    """`methods` are the methods that a user's own entry must have; `call` shows how an entry is called."""

    def __init__(
        self, kind: str, entries: Mapping[str, T | str], *, methods: Sequence[str] = (), call: str = ""
    ) -> None:
        self.kind = kind
        self._entries: dict[str, T | str] = dict(entries)
        self._methods = tuple(methods)
        self._call = call

    def find(self, name: str) -> T:
        """The entry of that name, or the user's own "module:attribute"."""
        if name in self._entries:
            return self[name]
        if not is_own(name):
            found = closest(name, self._entries)
            hint = f" (did you mean {found!r}?)" if found else ""
            raise ConfigError(
                f"{self.kind} {name!r} is not one of {', '.join(self._entries)}{hint}; name one of your own as "
                "module:Class."
            )
        return self._checked(name)

    def build(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the entry. Options that it does not accept are refused with one sentence."""
        entry = cast(Any, self.find(name))
        try:
            return entry(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.kind} {name!r} cannot be built with options {options}: {error}; a {self.kind} is called as "
                f"{self._call}."
            ) from None

    def _checked(self, name: str) -> T:
        if _UNTRUSTED:
            raise ConfigError(
                f"{self.kind} {name!r} is code that {_UNTRUSTED[-1]} names, and loading it would run it: read that "
                "code, then allow it with --trust."
            )
        try:
            with _current_folder_importable():
                found = _imported(name)
        except Exception as error:  # a user's module may fail in any way while it is imported
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ConfigError(
                f"{self.kind} {name!r} cannot be loaded ({reason}): it must be importable from the current folder."
            ) from None
        missing = [method for method in self._methods if not callable(getattr(found, method, None))]
        if missing:
            raise ConfigError(
                f"{self.kind} {name!r} has no {', no '.join(missing)}; a {self.kind} has {', '.join(self._methods)}."
            )
        for module in {name.partition(":")[0], getattr(found, "__module__", "")}:  # it may be defined elsewhere
            known = _LOADED.setdefault(module, [])
            if (self.kind, name) not in known:
                known.append((self.kind, name))
        return cast(T, found)

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        return cast(T, _imported(entry)) if isinstance(entry, str) else entry

    def __setitem__(self, name: str, entry: T | str) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def loaded_plugins() -> Mapping[str, list[tuple[str, str]]]:
    """The users' own entries that were loaded in this process: kind and name of each, by module."""
    return _LOADED


@contextmanager
def without_plugins(source: str) -> Iterator[None]:
    """Load no user's own entry in this process meanwhile, because the names come from `source`, not from the user."""
    _UNTRUSTED.append(source)
    try:
        yield
    finally:
        _UNTRUSTED.pop()


def is_own(name: str) -> bool:
    """Whether a name has the form "module:attribute" of a user's own entry."""
    module, colon, attribute = name.partition(":")
    return bool(module and colon and attribute)


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Put the current folder on the import path, and take it off again."""
    folder = str(Path.cwd())
    if folder in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)
