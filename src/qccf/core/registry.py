"""How a name in the config becomes a class: an entry of a table, or a user's own as `module:Class`."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from qccf.core.errors import ConfigError

T = TypeVar("T")


def find(kind: str, name: str, table: Mapping[str, Callable[..., T]], methods: Sequence[str] = ()) -> Callable[..., T]:
    """What the name stands for; `methods` are those that one of the user's own must have."""
    return table[name] if name in table else _load(kind, name, table, methods)


def build(kind: str, name: str, factory: Callable[..., T], call: str, **options: Any) -> T:
    """Call the factory; options that it does not take get a sentence with how it is called."""
    try:
        return factory(**options)
    except TypeError as error:
        raise ConfigError(
            f"{kind} {name!r} cannot be built with options {options}: {error}; a {kind} is called as {call}."
        ) from None


def _load(kind: str, name: str, table: Mapping[str, Any], methods: Sequence[str]) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"{kind} {name!r} is not one of {', '.join(table)}; name one of your own as module:Class.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # a user's module may fail in any way while it is imported
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{kind} {name!r} cannot be loaded ({reason}): it must be importable from here.") from None
    missing = [method for method in methods if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(f"{kind} {name!r} has no {', no '.join(missing)}; a {kind} has {', '.join(methods)}.")
    return found
