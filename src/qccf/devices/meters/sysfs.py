"""Numbers and words from the files of the kernel."""

from pathlib import Path

from qccf.core.errors import MeterError


def read_word(path: Path) -> str:
    """The text of a file without its line end."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not text"
        raise MeterError(f"{path} cannot be read: {why}.") from None


def read_count(path: Path) -> int:
    """The whole number in a file."""
    text = read_word(path)
    try:
        return int(text)
    except ValueError:
        raise MeterError(f"{path} holds {text[:40]!r} instead of a whole number.") from None
