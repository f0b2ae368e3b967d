"""The report in a real browser: no errors, no horizontal scrolling, and figures that react to mouse and keyboard."""

from dataclasses import replace
from pathlib import Path

import pytest

from qccf.reports.page.build import build_report
from qccf.reports.page.opening import Manifest
from qccf.rounds.run import Run
from tests.helpers.made_runs import AS_CLAIMED, REVERSED, first_rounds, made_family, made_studies

pytestmark = pytest.mark.browser

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


SCREEN = {"width": 1280, "height": 800}
MOST_SCREENS = 10


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    report = build_report(made_family(AS_CLAIMED).records, made_studies(), Manifest(), "", varied_runs())
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.page, encoding="utf-8")
    return path


def varied_runs() -> list[Run]:
    """Three rounds and one seed: there is no interval, and principle's patience must still be drawable."""
    runs = [first_rounds(run, 3) for run in made_family(AS_CLAIMED, seeds=1).records]
    return [
        replace(run, scenario=run.scenario.replaced(federation={"rounds": 3}, radio={"gain_db": 10.0})) for run in runs
    ]


def opened(browser, page_file: Path, size: str, scheme: str):
    page = browser.new_context(viewport=SIZES[size], color_scheme=scheme).new_page()
    page.messages = []
    page.on("console", lambda message: page.messages.append(message.text))
    page.on("pageerror", lambda error: page.messages.append(str(error)))
    page.on("request", lambda request: page.messages.append(request.url) if request.url.startswith("http") else None)
    page.goto(page_file.as_uri())
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_opens_without_messages(browser, page_file: Path, size: str, scheme: str) -> None:
    page = opened(browser, page_file, size, scheme)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= SIZES[size]["width"], "the page must not scroll sideways"
    assert page.locator("svg.plot").count() >= 8
    assert page.locator("svg.forest-line").count() >= 12
    assert page.locator("svg.plot path").count() > 50
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert dark == (scheme == "dark")
    assert page.messages == []


def test_pointing_zooming_and_switching_off(browser, page_file: Path) -> None:
    page = opened(browser, page_file, "desktop", "light")
    figure = page.locator("#policies-emnist")
    plot = figure.locator("svg.plot").nth(1)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    tip = figure.locator(".tip").nth(1)
    assert tip.is_visible()
    assert "round: 18" in tip.inner_text()
    assert "qccf: " in tip.inner_text()
    assert "[" in tip.inner_text(), "an interval is shown"
    ticks = plot.locator("text").all_inner_texts()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 120, box["y"] + 200, steps=4)
    page.mouse.up()
    assert plot.locator("text").all_inner_texts() != ticks, "a box zooms"
    page.mouse.dblclick(box["x"] + 200, box["y"] + 100)
    assert plot.locator("text").all_inner_texts() == ticks, "a double click resets"
    button = figure.get_by_role("button", name="qccf")
    curves = plot.locator(".curves > path").count()
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert plot.locator(".curves > path").count() == curves - 2, "line and band are gone"
    button.click()
    assert plot.locator(".curves > path").count() == curves
    assert page.messages == []


def test_the_keyboard_reads_and_zooms(browser, page_file: Path) -> None:
    page = opened(browser, page_file, "desktop", "light")
    figure = page.locator("#bits-emnist")
    plot = figure.locator("svg.plot").first
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = figure.locator(".tip").first
    assert "round: 2" in tip.inner_text()
    ticks = plot.locator("text").all_inner_texts()
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert plot.locator("text").all_inner_texts() != ticks
    page.keyboard.press("0")
    assert plot.locator("text").all_inner_texts() == ticks
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") in ("BUTTON", "svg", "A")
    assert page.messages == []


def test_a_finger_reads_values_that_stay(browser, page_file: Path) -> None:
    page = browser.new_context(viewport=SIZES["phone"], has_touch=True).new_page()
    page.goto(page_file.as_uri())
    figure = page.locator("#policies-emnist")
    plot = figure.locator("svg.plot").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 100)
    assert "qccf: " in figure.locator(".tip").first.inner_text()


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory) -> Path:
    """Two tasks, two β and five V of each, the studies, and findings."""
    first = list(made_family(AS_CLAIMED, seeds=2).records)
    second = [
        replace(run, scenario=run.scenario.replaced(data={"dataset": "cifar10"}, learning={"model": "cifar10-cnn"}))
        for run in made_family(REVERSED, reverse=True, seeds=2).records
    ]
    finding = {"kind": "empty-rounds", "message": "3 of 40 rounds had no participant: raise device.deadline_s."}
    ill = [replace(run, summary=run.summary | {"health": [finding]}) for run in (*first, *second)]
    report = build_report(ill, made_studies(), Manifest("qccf reproduce all", "small"))
    path = tmp_path_factory.mktemp("reproduction") / "report.html"
    path.write_text(report.page, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_whole_reproduction_is_at_most_ten_screens_and_its_contents_stay_in_sight(browser, reproduction) -> None:
    page = browser.new_context(viewport=SCREEN, reduced_motion="reduce").new_page()
    page.goto(reproduction.as_uri())
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height <= MOST_SCREENS * SCREEN["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREEN["width"]
    links = page.locator("nav.contents a")
    assert links.all_inner_texts() == ["Overview", "Figures", "Studies", "Claims", "Results", "Settings"]
    for link in links.all():
        link.click()
        page.wait_for_function(
            "id => document.querySelector(id).getBoundingClientRect().top < innerHeight", arg=link.get_attribute("href")
        )
        assert all(one.is_visible() and one.bounding_box()["y"] >= 0 for one in links.all()), "after scrolling, too"
        assert links.last.bounding_box()["y"] < SCREEN["height"]
    assert page.locator("nav.contents [aria-current]").inner_text() == "Settings", "the section that is being read"


@pytest.mark.slow
def test_on_a_phone_the_contents_are_one_line_and_nothing_scrolls_sideways(browser, reproduction: Path) -> None:
    page = browser.new_context(viewport=SIZES["phone"], reduced_motion="reduce").new_page()
    page.goto(reproduction.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"]["width"]
    page.evaluate("document.getElementById('claims').scrollIntoView()")
    menu = page.locator("nav.contents").bounding_box()
    assert menu["y"] == 0
    assert menu["height"] < 60


def test_a_link_into_a_fold_opens_it_and_its_figure_has_its_width(browser, page_file: Path) -> None:
    page = opened(browser, page_file, "desktop", "light")
    folded = page.locator("details.fold figure.chart").first
    assert not folded.is_visible()
    page.evaluate("key => { location.hash = key; }", folded.get_attribute("id"))
    plot = folded.locator("svg.plot").first
    plot.wait_for(state="visible")
    page.wait_for_function(
        "plot => Math.abs(plot.viewBox.baseVal.width - plot.clientWidth) < 2", arg=plot.element_handle()
    )
    assert page.messages == []


def test_paper_has_no_folds(browser, page_file: Path) -> None:
    page = opened(browser, page_file, "desktop", "light")
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(closed)
    assert before > 5
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(closed) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(closed) == before


def test_every_mark_is_drawn_at_a_number(browser, page_file: Path) -> None:
    page = opened(browser, page_file, "desktop", "light")
    drawn = page.evaluate("[...document.querySelectorAll('svg.plot')].map((plot) => plot.outerHTML).join('')")
    assert "NaN" not in drawn


def test_files_can_be_downloaded(browser, page_file: Path, tmp_path: Path) -> None:
    page = opened(browser, page_file, "desktop", "light")
    with page.expect_download() as waiting:
        page.locator("#weights-emnist").get_by_role("link", name="PDF").click()
    waiting.value.save_as(tmp_path / "figure.pdf")
    assert waiting.value.suggested_filename == "weights-emnist.pdf"
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
