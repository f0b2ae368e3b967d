"""The documentation site builds without a warning, works offline, and is up to date with the code."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import qccf.flower

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_documents_made_from_code_are_up_to_date(generate) -> None:
    assert set(generate.DOCUMENTS) == {"paper-map.md", "cli.md", "settings.md"}
    for name, text in generate.DOCUMENTS.items():
        assert (ROOT / "docs" / name).read_text() == text(), f"docs/{name} is out of date: run make docs"
    shipped = ROOT / "src" / "qccf" / "reports" / "page" / "assets" / "deviations.md"
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
    for command in ("run", "compare", "reproduce", "sweep", "report", "plan", "decide", "settings", "data", "flower"):
        assert f"## `qccf {command}`" in text
    assert not re.findall(r"^\| `[^|]*` \|  ?\|$", text, re.MULTILINE), "an option without a description"


def test_every_document_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = set(re.findall(r"[\w-]+\.md", str(nav)))
    assert listed == {path.name for path in (ROOT / "docs").rglob("*.md")}


def test_records_are_small_and_name_no_machine() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    machine = re.compile(r"/(?:" + "|".join(["wor" + "k", "roo" + "t", "tm" + "p", "home"]) + r")/\w")
    for path in files:
        if path.suffix in (".md", ".json", ".csv"):
            assert not machine.search(path.read_text(encoding="utf-8")), path
    assert {"training-forms.json", "decisions.json"} <= {path.name for path in files}
    for path in RESULTS.glob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8")), path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site_is_complete_and_loads_nothing_from_elsewhere(site: Path) -> None:
    page = (site / "run.html").read_text()
    assert "examples/one_round_by_hand.py" in page
    assert 'href="../examples' not in page
    for built in site.glob("*.html"):
        text = built.read_text()
        assert "fonts.googleapis" not in text
        assert not re.search(r'<(?:script|link)[^>]+(?:src|href)="https?://', text), (
            f"{built.name} loads from elsewhere"
        )


def test_the_api_pages_show_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    for package in (qccf, qccf.flower):
        for name in set(package.__all__) - {"__version__", "POLICIES"}:
            assert f'id="{package.__name__}.{name}"' in page, f"docs/api.md lacks {package.__name__}.{name}"
    assert "qccf.POLICIES" in page


@pytest.mark.browser
def test_search_works_in_a_folder(site: Path, browser) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto((site / "index.html").as_uri())
    page.focus("input.md-search__input")
    page.get_by_text("Type to start searching").wait_for(state="attached", timeout=120_000)
    page.keyboard.type("taylor")
    page.wait_for_selector('.md-search-result__link[href*="decide.html"]', state="attached", timeout=120_000)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_follow_the_colour_scheme(site: Path, browser, scheme: str) -> None:
    page = browser.new_context(offline=True, color_scheme=scheme).new_page()
    page.goto((site / "idea.html").as_uri())
    figures = page.locator(".md-content img")
    assert figures.count() == 3
    for figure in figures.all():
        figure.scroll_into_view_if_needed()
        pixels = np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("L"), dtype=float)
        assert (np.median(pixels) > 200) == (scheme == "light"), "the background follows the page"
        assert np.ptp(pixels) > 150, "text and curves stand out"
