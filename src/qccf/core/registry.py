"""Named entries of one kind (policies, codecs, datasets, models, path losses), and how a name becomes an entry.

An entry is one line: its name and either the object itself or "module:attribute", which is imported on first use. A
user's own entry needs no line: its name is "module:attribute", importable from the current folder.
"""

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from qccf.core.errors import ConfigError
from qccf.core.suggest import closest, hint
from qccf.core.words import article

T = TypeVar("T")

_LOADED: dict[str, list[tuple[str, str]]] = {}
_UNTRUSTED: list[tuple[str, str]] = []


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
            meant = f" (did you mean {found!r}?)" if found else ""
            raise ConfigError(
                f"{self.kind} {name!r} is not one of {', '.join(self._entries)}{meant}; name one of your own as "
                f"{'module:Class' if self._methods else 'module:callable'}."
            )
        return self._checked(name)

    def build(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the entry. Options that it does not accept are refused with one sentence.

        An error inside a user's own entry is passed on as it is, with the line where it arose.
        """
        entry = cast(Any, self.find(name))
        if name not in self and _accepts(entry, arguments, options):
            return entry(*arguments, **options)
        try:
            return entry(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.kind} {name!r} cannot be built with options {options}: {error}; {article(self.kind)} "
                f"{self.kind} is called as {self._call}."
            ) from error

    def _checked(self, name: str) -> T:
        if _UNTRUSTED:
            source, option = _UNTRUSTED[-1]
            raise ConfigError(
                f"{self.kind} {name!r} is code that {source} names, and loading it would run it: read that code, then "
                f"allow it with {option}."
            )
        try:
            with _current_folder_importable():
                found = _imported(name)
        except Exception as error:  # a user's module may fail in any way while it is imported
            raise ConfigError(f"{self.kind} {name!r} cannot be loaded: {_why_not_loaded(name, error)}") from error
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
def without_plugins(source: str, option: str = "--trust") -> Iterator[None]:
    """Load no user's own entry in this process meanwhile, because the names come from `source`, not from the user.

    `option` is what allows it on the command line.
    """
    _UNTRUSTED.append((source, option))
    try:
        yield
    finally:
        _UNTRUSTED.pop()


def is_own(name: str) -> bool:
    """Whether a name has the form "module:attribute" of a user's own entry."""
    module, colon, attribute = name.partition(":")
    return bool(module and colon and attribute)


def source_digest(names: Iterable[str]) -> str:
    """A digest of the files of users' own entries, without importing them; empty where there are none.

    Modules that these files import are not part of it.
    """
    files = [_source_file(name.partition(":")[0]) for name in sorted(set(names))]
    hashed = hashlib.sha256()
    for file in files:
        hashed.update(b"" if file is None else file.read_bytes())
    return hashed.hexdigest() if files else ""


def _source_file(module: str) -> Path | None:
    for folder in (Path.cwd(), *map(Path, sys.path)):
        place = folder.joinpath(*module.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _accepts(entry: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether an entry can be called in this way, as far as it can be known without calling it."""
    try:
        inspect.signature(entry).bind(*arguments, **options)
    except (TypeError, ValueError):
        return False
    return True


def _why_not_loaded(name: str, error: Exception) -> str:
    """Why a user's own entry could not be imported, and what helps."""
    module, _, attribute = name.partition(":")
    loaded = sys.modules.get(module)
    if loaded is not None and not hasattr(loaded, attribute):
        known = [one for one in vars(loaded) if not one.startswith("_")]
        return f"module {module} has no {attribute}; {hint(attribute, known)}"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}; it must be importable from the current folder."
    reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
    if isinstance(error, SyntaxError):
        return f"{reason}."
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    written = [place for place in places if not place[0].startswith("<") and Path(place[0]) != Path(importlib.__file__)]
    file, line = written[-1]
    return f"{Path(file).name}, line {line}: {reason}."


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
