"""Whose fault an unexpected error is: a user's own code, or qccf's."""

import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from qccf.core.registry import loaded_plugins

PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def plugin_failure(error: BaseException) -> str | None:
    """The plug-in in which an error arose, with file and line; None if no plug-in was running."""
    frames = list(traceback.walk_tb(error.__traceback__))
    called = next((frame for frame, _ in frames if _is_plugin(frame)), None)
    if called is None:
        return None
    last, line = [(frame, line) for frame, line in frames if _is_users(frame)][-1]
    where = f"{Path(last.f_code.co_filename).name}, line {line}"
    return f"{_plugin(called)} failed in {called.f_code.co_name} ({where}): {reason(error)}"


def place(error: BaseException) -> str:
    """The file and line where an error was raised."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    return f"{Path(frame.f_code.co_filename).name}, line {line}"


def reason(error: BaseException) -> str:
    """The kind of an error and the first line of its text."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_plugin(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in loaded_plugins()


def _is_users(frame: FrameType) -> bool:
    """Whether it runs code of a plug-in, or of a file beside or below one."""
    if _is_plugin(frame):
        return True
    file = Path(frame.f_code.co_filename)
    ours_or_library = str(file).startswith(_LIBRARIES) or "site-packages" in file.parts or PACKAGE in file.parents
    return not ours_or_library and any(folder in file.parents for folder in _folders())


def _folders() -> set[Path]:
    files = (getattr(sys.modules.get(module), "__file__", None) for module in loaded_plugins())
    return {Path(file).parent for file in files if file}


def _plugin(frame: FrameType) -> str:
    """The plug-in of the frame's module; of several, the one whose class or function runs."""
    found = loaded_plugins()[str(frame.f_globals.get("__name__"))]
    running = {type(frame.f_locals.get("self")).__name__, frame.f_code.co_name}
    kind, name = min(found, key=lambda one: one[1].partition(":")[2] not in running)
    return f"{kind} {name!r}"
