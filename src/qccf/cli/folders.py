"""The folder that a command writes to: its default name, and what happens if it already holds something.

A folder is recognised by the files that the commands leave there. `compare` and `plan` also write the digest of what
they were asked to do, so that the same command finds its folder again and another one is refused.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qccf.core.errors import RunFolderError
from qccf.core.files import LOCK, alone_in, write_text_whole

if TYPE_CHECKING:
    from qccf.settings.loading import Scenario

Kind = Literal["run", "compare", "plan", "sweep", "reproduce"]

COMMAND = "command.json"
"""Which command filled the folder, and the digest of its settings."""

DIGITS = 8
"""How much of a digest a folder's name shows."""

NAMES: dict[Kind, str] = {
    "run": "a run", "compare": "a comparison", "plan": "a plan", "sweep": "a sweep", "reproduce": "a reproduction",
}  # fmt: skip
_FIGURES = ("figures/learning.png", "figures/bits.png", "figures/cell.png", "figures/partition.png")
FILES: dict[Kind, tuple[str, ...]] = {
    "run": (
        "scenario.toml", "rounds.parquet", "clients.parquet", "statistics.parquet", "summary.json", "failed.txt",
        "checkpoints/round-*.npz", "tensorboard/events.out.tfevents.*", *_FIGURES,
    ),
    "compare": (COMMAND, "summary.json", *_FIGURES),
    "plan": (COMMAND, "plan.json", "plan.png"),
    "sweep": ("sweep.toml", "results.parquet", "rounds.parquet"),
}  # fmt: skip
"""What `--force` removes. A reproduction takes hours and is never removed."""

RUNS: dict[Kind, str] = {"compare": "*", "sweep": "runs/*"}
"""Where the runs of a folder are."""


def default_folder(name: str, digest: str) -> Path:
    """`runs/NAME-DIGEST`: the same settings have the same folder, others another."""
    return Path("runs") / f"{name}-{digest[:DIGITS]}"


def require_free_for_run(out: Path, scenario: "Scenario", *, force: bool) -> None:
    """Refuse a folder that holds anything but this run. With `force`, remove what qccf has written there."""
    from qccf.rounds.run_folder import require_same_run

    if force:
        with alone_in(out):
            remove_written(out)
        return
    found = kind_of(out)
    if found == "run":
        require_same_run(out, scenario)
    elif found is not None or _holds_files(out):
        raise _held(out, found)


@contextmanager
def claimed(out: Path, kind: Kind, digest: str = "", *, force: bool = False) -> Iterator[None]:
    """Hold a folder for a command with settings of this digest; without one, they may change."""
    if not force:
        _require_free(out, kind, digest)  # before anything is written
    with alone_in(out):
        if force:
            remove_written(out)
        else:
            _require_free(out, kind, digest)  # another process may have been faster
        if digest:
            write_text_whole(out / COMMAND, json.dumps({"command": kind, "digest": digest}) + "\n")
        yield


def _require_free(out: Path, kind: Kind, digest: str) -> None:
    found = kind_of(out)
    if found is None and not _holds_files(out):
        return
    if found != kind or (digest and _command_in(out) != {"command": kind, "digest": digest}):
        raise _held(out, found, "of other settings" if found == kind else "")


def kind_of(folder: Path) -> Kind | None:
    """What a command has written into a folder; None where it is empty or holds only files that are not ours."""

    def holds(name: str, *beside: str) -> bool:
        """A file of that name alone may be the user's own."""
        return (folder / name).exists() and any((folder / other).exists() for other in (*beside, LOCK))

    if holds("scenario.toml", "summary.json", "checkpoints"):
        return "run"
    if holds("sweep.toml", "runs"):
        return "sweep"
    if (folder / "reproduction.json").exists():
        return "reproduce"
    named: dict[str, Kind] = {"compare": "compare", "plan": "plan"}
    return named.get(_command_in(folder).get("command", ""))


def remove_written(folder: Path) -> None:
    """Remove the files that commands have written into a folder; all others stay."""
    kind = kind_of(folder)
    if kind == "reproduce":
        raise RunFolderError(f"{folder} holds a reproduction, which --force does not remove: name another folder.")
    if kind is None:
        return
    for run in folder.glob(RUNS[kind]) if kind in RUNS else ():
        if not run.is_symlink() and kind_of(run) == "run":
            _remove(run, FILES["run"])
            (run / LOCK).unlink(missing_ok=True)
            _remove_empty(run)
    _remove(folder, FILES[kind])
    _remove_empty(folder / "runs")


def _remove(folder: Path, patterns: tuple[str, ...]) -> None:
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        path.unlink()
    for name in {pattern.partition("/")[0] for pattern in patterns if "/" in pattern}:
        _remove_empty(folder / name)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def _command_in(folder: Path) -> dict[str, str]:
    try:
        tree = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _holds_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.name != LOCK for path in folder.iterdir())


def _held(folder: Path, found: Kind | None, note: str = "") -> RunFolderError:
    what = f"{NAMES[found]} {note}".strip() if found else "files of another origin"
    remedy = {
        None: ", or keep them and write beside them with --force",
        "reproduce": "",
    }.get(found, ", or replace it with --force")
    return RunFolderError(f"{folder} holds {what}: name another folder with --out{remedy}.")
