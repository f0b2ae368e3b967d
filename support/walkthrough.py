"""Walks through README and documents as a new user: runs every command and every Python block that they print.

Run: python -m support.walkthrough [--quick] [--only PAGE] [--list]
Without --quick it clones this repository, installs it as the README says, and runs each command in its own process:
about half an hour. With --quick it copies the tracked files to a temporary folder and runs the commands that take
seconds in one process; tests call it that way. Training commands run in a short form: few rounds, few samples. A
command that the rules below do not know is an error, so that nothing new stays untried.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
PROGRAMS = (
    "qccf",
    ".venv/bin/qccf",
    ".venv/bin/python",
    ".venv/bin/pip",
    "python",
    "python3",
    "make",
    "flwr",
    "export",
)

FEW_SAMPLES = (
    "--set data.dataset_size_mean=60 --set data.dataset_size_std=10 --set data.dataset_size_min=20 "
    "--set device.cycles_per_sample=20000 --set evaluation.samples=200"
)

Lane = Literal["quick", "slow", "never"]


@dataclass(frozen=True)
class Rule:
    """What happens to commands that match: where they run, what is added, what is replaced, how they end."""

    pattern: str
    lane: Lane
    add: str = ""
    replace: tuple[tuple[str, str], ...] = ()
    status: int = 0
    why: str = ""
    """Why they are never run."""


RULES = (
    Rule(r"^python3 -m venv|pip install", "never", why="done once, before the first command"),
    Rule(r"--address ", "never", why="needs a cluster"),
    Rule(r"^make (run|test|check)", "never", why="run by CI and by hand; this script runs what they run"),
    Rule(r"\[(-|PRESET|fig)|…|\b(DIR|FILE|NAME|RUN)\b", "never", why="a synopsis"),
    Rule(r" < ", "slow"),
    Rule(r"^qccf report runs/reproduce", "slow", replace=((r"reproduce-(small|full)", "reproduce-smoke"),)),
    Rule(r"^export ", "never", why="the programs are found without it"),
    Rule(r"benchmarks\.|benchmarks/growth", "never", why="measures for minutes; its results are recorded"),
    Rule(r"^make docs", "slow"),
    Rule(r"devices\.profile=my-laptop\.toml", "never", why="needs the file that `qccf device measure` writes"),
    Rule(r"sudo ", "never", why="asks for the rights of root"),
    Rule(r"^qccf device measure", "never", why="measures for seconds what this machine takes; tests use a made-up one"),
    Rule(r"^qccf serve", "never", why="runs until it is stopped; tests start it"),
    Rule(r"examples/service_client", "never", why="needs a running service; a test runs it against one"),
    Rule(r"^qccf plan paper-table", "quick", status=2),
    Rule(r"^qccf plan", "quick", add="--rounds 4", replace=((r"--seeds \d+", "--seeds 2"),)),
    Rule(r"^qccf (run|compare) .*own_", "slow", add="--rounds 2"),
    Rule(r"^qccf compare .*examples\.custom", "slow", add=f"--rounds 2 {FEW_SAMPLES}"),  # tests run these two kinds
    Rule(r"^qccf run --resume", "quick"),
    Rule(r"^qccf (run|compare)", "quick", add=f"--rounds 2 {FEW_SAMPLES}", replace=((r"--seeds \d+", "--seeds 2"),)),
    Rule(r"^qccf reproduce", "slow", replace=((r"--scale (small|full)", "--scale smoke"),)),
    Rule(r"^qccf sweep .*--engine ray", "slow"),
    Rule(r"^qccf sweep", "slow"),
    Rule(r"^qccf (report|decide|settings|data list|flower new|completion|--help|--version)", "quick"),
    Rule(r"^qccf data (fetch|check)", "never", why="downloads a dataset"),
    Rule(r"^flwr run", "slow"),
    Rule(r"^python examples/", "slow"),
    Rule(r"^<python>", "slow"),
)


@dataclass(frozen=True)
class Step:
    """One command of a page, without comment and prompt; a Python block has the name `<python>` and its text."""

    page: str
    line: int
    command: str
    code: str = ""

    @property
    def rule(self) -> Rule:
        """The first rule that matches; raises for a command that no rule knows."""
        for rule in RULES:
            if re.search(rule.pattern, self.command):
                return rule
        raise SystemExit(f"{self.page}, line {self.line}: no rule knows {self.command!r}: add one to {__file__}")

    @property
    def short(self) -> str:
        """The command as it is run here."""
        text = self.command
        for pattern, other in self.rule.replace:
            text = re.sub(pattern, other, text)
        return f"{text} {self.rule.add}".strip()


def steps(folder: Path) -> Iterator[Step]:
    """The commands and Python blocks of README and documents, in the order in which a reader meets them."""
    for path in (folder / "README.md", folder / "CONTRIBUTING.md", *sorted((folder / "docs").glob("*.md"))):
        yield from _page_steps(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))


def _page_steps(page: str, text: str) -> Iterator[Step]:
    language: str | None = None
    block: list[str] = []
    begin = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("```"):
            block.append(line)
            continue
        if language is None:
            language, block, begin = line[3:].strip(), [], number
            continue
        if language == "python":
            yield Step(page, begin, "<python>", "\n".join(block) + "\n")
        elif language in ("", "console", "bash", "sh"):
            yield from _commands(page, begin, block)
        language = None


def _commands(page: str, begin: int, block: Sequence[str]) -> Iterator[Step]:
    for offset, line in enumerate(block, start=1):
        if _is_command(line):
            text = re.sub(r"\s+#.*$", "", line.removeprefix("$ ")).removeprefix(".venv/bin/")
            yield Step(page, begin + offset, re.sub(r"^(\w+) +", r"\1 ", text).strip())


def _is_command(line: str) -> bool:
    first = line.removeprefix("$ ").partition(" ")[0]
    return first in PROGRAMS


class FailedError(Exception):
    """A command that did not end as it should, with what it printed."""


def walk(chosen: Sequence[Step], folder: Path, *, quick: bool, python: Path) -> int:
    """Run the steps in `folder`; returns how many were run. Raises `FailedError` at the first that fails."""
    done: set[str] = set()
    for step in chosen:
        if step.rule.lane == "never" or (quick and step.rule.lane != "quick"):
            continue
        if (step.short + step.code) in done:  # printed on several pages
            continue
        done.add(step.short + step.code)
        started = time.monotonic()
        status, printed = _in_process(step, folder) if quick else _in_own_process(step, folder, python)
        taken = f"{time.monotonic() - started:5.1f} s"
        print(f"{taken}  {step.page}:{step.line}  {step.short}", flush=True)
        if status != step.rule.status or "Traceback (most recent call last)" in printed:
            raise FailedError(f"{step.page}, line {step.line}: {step.short}\nended with {status}:\n{printed}")
    return len(done)


def _in_process(step: Step, folder: Path) -> tuple[int, str]:
    from qccf.cli.main import main

    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = main(shlex.split(step.short)[1:])
        except SystemExit as error:  # argparse
            status = error.code if isinstance(error.code, int) else 1
    return status, printed.getvalue()


def _in_own_process(step: Step, folder: Path, python: Path) -> tuple[int, str]:
    programs = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(python), "-c", step.code] if step.code else ["bash", "-c", step.short]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": programs},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout


def copied(folder: Path) -> Path:
    """The tracked files, as they are now, in a new folder."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, target)
    (folder / "my-cell.toml").write_text('preset = "quick"\n[radio]\ngain_db = 10.0\n', encoding="utf-8")
    return folder


def cloned(folder: Path) -> Path:
    """A clone of the last commit with all extras, installed as the Makefile does it."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    subprocess.run(["make", "--quiet", ".venv/.ready-dev"], cwd=folder, check=True)
    (folder / "my-cell.toml").write_text('preset = "quick"\n[radio]\ngain_db = 10.0\n', encoding="utf-8")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only what takes seconds, in one process")
    parser.add_argument("--only", default="", metavar="PAGE", help="only pages whose name contains this")
    parser.add_argument("--list", action="store_true", help="print what would be run and stop")
    options = parser.parse_args()
    chosen = [step for step in steps(ROOT) if options.only in step.page]
    if options.list:
        for step in chosen:
            print(f"{step.rule.lane:5}  {step.page}:{step.line}  {step.short}  {step.rule.why}".rstrip())
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["QCCF_DATA"] = temporary  # a new user has no data
        folder = Path(temporary) / "qccf"
        folder = copied(folder) if options.quick else cloned(folder)
        python = Path(sys.executable) if options.quick else folder / ".venv" / "bin" / "python"
        try:
            count = walk(chosen, folder, quick=options.quick, python=python)
        except FailedError as failure:
            print(failure, file=sys.stderr)
            return 1
    print(f"{count} commands ran as the documents say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
