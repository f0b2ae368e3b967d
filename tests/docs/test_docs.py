"""Snippets in documents run, commands parse, links and files exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import qccf
from qccf.cli.main import parser

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.slow
def test_the_readmes_python_runs() -> None:
    snippet = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert snippet is not None
    done = subprocess.run([sys.executable, "-c", snippet[1]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"qccf +0 +0\.\d+ +1\.0", done.stdout)
    assert "Run(qccf, codec update+entropy, seed 0: rounds 3" in done.stdout
    assert "test_accuracy" in done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_parse(document: Path) -> None:
    for line in re.findall(r"^\.venv/bin/qccf (.*)$", document.read_text(), re.MULTILINE):
        parser().parse_args(shlex.split(line, comments=True))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("name", ["round", "paper-round"])
def test_the_examples_problem_is_decided(name: str) -> None:
    command = [sys.executable, "-m", "qccf", "decide", f"examples/{name}.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "proven within" in done.stdout


def test_files_named_in_documents_exist() -> None:
    for document in DOCUMENTS:
        for name in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w/.-]+\.\w+)`", document.read_text()):
            folder = ROOT / "tests" if document.name == "paper-map.md" else ROOT  # the map names tests only
            assert (folder / name).exists() or (ROOT / name).exists(), f"{document.name} names {name}"


def test_nothing_names_a_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT).stdout.split()
    pattern = re.compile(r"/(?:" + "|".join(["wor" + "k", "roo" + "t", "tm" + "p", "opt"]) + r")/\w")
    for name in tracked:
        path = ROOT / name
        if path.exists() and path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ""}:
            assert not pattern.search(path.read_text(encoding="utf-8")), f"{name} names a machine path"


def test_recorded_results_stay_small() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "docs/results"], capture_output=True, text=True, cwd=ROOT
    ).stdout.split()
    assert sum((ROOT / name).stat().st_size for name in tracked if (ROOT / name).exists()) < 2_000_000


def test_the_citation_is_of_this_version_and_complete() -> None:
    """Keys that the Citation File Format 1.2.0 requires."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == qccf.__version__
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper)
    assert paper["title"] in re.sub(r"\s+", " ", (ROOT / "README.md").read_text())


def test_the_benchmark_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.decide", "--quick"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "| 10 × 10 |" in done.stdout
    assert "| assignment | 0 | 0 | 0 | 100.0% |" in done.stdout
