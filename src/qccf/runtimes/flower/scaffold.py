"""Writes a Flower app that is ready to run: `qccf flower new DIR`."""

import re
from importlib.resources import files
from pathlib import Path

from qccf.core.errors import ConfigError
from qccf.core.files import write_text_whole

PACKAGE = "federation"


def new_app(folder: Path) -> list[Path]:
    """Write the app into a new or empty folder; returns the files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty: name a new folder.")
    name = re.sub(r"[^a-z0-9-]+", "-", folder.resolve().name.lower()).strip("-") or "federation"
    template = files("qccf.runtimes.flower") / "template"
    written = []
    for source, target in (
        ("pyproject.toml.txt", "pyproject.toml"),
        ("README.md.txt", "README.md"),
        ("server_app.py.txt", f"{PACKAGE}/server_app.py"),
        ("client_app.py.txt", f"{PACKAGE}/client_app.py"),
    ):
        text = (template / source).read_text(encoding="utf-8").replace("{name}", name)
        write_text_whole(folder / target, text)
        written.append(folder / target)
    write_text_whole(folder / PACKAGE / "__init__.py", "")
    return written
