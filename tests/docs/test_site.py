"""The documentation site builds without a warning, and what is made from code is not behind it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from qccf.paper.claims import CLAIMS

ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "docs" / "results").glob("*/report.html"))


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_documents_made_from_code_are_not_behind_it(generate) -> None:
    for name, text in (("paper-map.md", generate.paper_map()), ("cli.md", generate.command_line())):
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name} is behind the code: run make docs"
    shipped = ROOT / "src" / "qccf" / "report" / "page" / "assets" / "deviations.md"
    assert shipped.read_text() == (ROOT / "docs" / "deviations.md").read_text(), "run make docs"


def test_everything_cited_has_a_place_and_a_test(generate) -> None:
    rows = [line.split(" | ") for line in generate.paper_map().splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 40
    for row in rows:
        assert row[0].strip("| "), f"no section of the paper: {row}"
        assert "test_" in row[-1], f"no test: {row}"
    text = generate.paper_map()
    for section in ("II-A", "II-B", "III", "IV-A", "IV-B", "IV-C", "V-A", "V-C", "V-D", "VI"):
        assert f"\n| {section} | " in text


def test_the_map_names_tests_that_exist(generate) -> None:
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", generate.paper_map()):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


def test_the_command_line_is_complete(generate) -> None:
    text = generate.command_line()
    for command in ("run", "compare", "reproduce", "sweep", "report", "plan", "decide", "data", "flower"):
        assert f"## `qccf {command}`" in text
    assert not re.findall(r"^\| `[^|]*` \|  ?\|$", text, re.MULTILINE), "an option without a word about it"


def test_every_document_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = set(re.findall(r"[\w-]+\.md", str(nav)))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("page", RECORDED, ids=lambda page: page.parent.name)
def test_a_recorded_report_is_of_todays_claims_and_names_no_machine(page: Path) -> None:
    claims = pd.read_csv(page.parent / "figures" / "claims.csv")
    for data, mine in claims.groupby("data"):
        told = dict(zip(mine["claim"], mine["words"], strict=True))
        assert told == {claim.key: claim.words for claim in CLAIMS}, data
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"/(?:" + "|".join(["wor" + "k", "roo" + "t", "tm" + "p", "home"]) + r")/\w", text)
    assert "Nobody has written down the cause yet" not in text
    assert "check it again" not in text
    assert "not finished yet" not in text


def test_results_are_recorded() -> None:
    assert RECORDED


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install 'qccf[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    page = (tmp_path / "run.html").read_text()
    assert "examples/one_round_by_hand.py" in page
    assert 'href="../examples' not in page
    for built in tmp_path.glob("*.html"):
        text = built.read_text()
        assert "fonts.googleapis" not in text
        assert not re.search(r'<(?:script|link)[^>]+(?:src|href)="https?://', text), (
            f"{built.name} loads from elsewhere"
        )
