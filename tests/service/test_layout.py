"""Nothing on the pages is cut off, squeezed or misleading, at any width."""

from collections.abc import Iterator

import pytest

from qccf.policies.registry import PAPERS_POLICIES
from qccf.rounds.run_folder import write_run
from qccf.settings.loading import load_scenario
from tests.helpers.pages import READY, SMALL, opened, setting
from tests.helpers.service import Running, running_service, written_rounds

pytestmark = pytest.mark.browser

FITS = """() => document.documentElement.scrollWidth <= innerWidth
    && [...document.querySelectorAll('.wide')].every((one) => one.scrollWidth <= one.clientWidth)"""
REMARKS = {"federation.rounds": 10, "device.deadline_s": 0.012, "radio.num_channels": 6}
FAR = {"federation.rounds": 5, "cell.radius_m": 900.0, "radio.gain_db": -12.0}


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Running]:
    runs = tmp_path_factory.mktemp("layout") / "runs"
    for name in ("whole", "a-damaged-run-with-a-long-name/qccf-update+entropy-seed0-3f9a1c2d"):
        *_, last = written_rounds(runs / name, load_scenario("femnist", SMALL))
        write_run(runs / name, last)
    (runs / name / "rounds.parquet").write_bytes(b"torn")
    with running_service(runs) as running:
        yield running


@pytest.mark.parametrize("settings", [REMARKS, FAR], ids=["remarks", "never"])
def test_remarks_leave_room_for_the_map_and_the_table(browser, service: Running, settings: dict) -> None:
    address = setting(settings=settings, policies=list(PAPERS_POLICIES), codecs=["model"], seeds=2)
    page = opened(browser, service, address)
    page.wait_for_selector(READY)
    assert page.locator(".remarks li, .never-list li").count() > 1
    for width in (390, 1000, 1200, 1280, 1300, 1320, 1400, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(FITS), width
        area, table = (page.locator(name).bounding_box() for name in (".map", ".results-table"))
        assert area["width"] >= 250, width
        if width >= 1200:
            assert table["x"] > area["x"] + area["width"], "the table is beside the map"
            assert table["width"] > area["width"]
    page.context.close()


def test_figures_of_a_run_get_most_of_the_width(browser, service: Running) -> None:
    name = next(one["id"] for one in service.client.get("/v1/runs").json() if one["name"] == "whole")
    page = opened(browser, service, f"/runs#run={name}")
    page.wait_for_selector("#run-figure svg.plot")
    for width in (390, 1200, 1400, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(FITS), width
        assert page.locator("#detail .map").bounding_box()["width"] >= 250
        assert page.locator("#run-figure").bounding_box()["width"] >= min(0.6 * width, 1000)
    page.context.close()


def test_a_run_that_cannot_be_read_is_told_whole_on_a_phone(browser, service: Running) -> None:
    page = opened(browser, service, "/runs", "phone")
    page.locator(".detail", has_text="rounds.parquet is damaged").wait_for()
    assert page.evaluate(FITS)
    box = page.locator(".detail").bounding_box()
    assert box["x"] + box["width"] <= 390


def test_two_settings_have_the_same_axes_and_nothing_is_cut(browser, service: Running) -> None:
    more = {"radio.transmit_power_w": 0.5, "federation.num_clients": 6, "federation.rounds": 8}
    policies = list(PAPERS_POLICIES)
    second = setting(settings=more, policies=policies).replace("/#a=", "&b=")
    page = opened(browser, service, setting(policies=policies) + second, 1400)
    page.wait_for_function("() => document.querySelectorAll('.scene-view[aria-busy=\"false\"]').length === 2")
    for width in (1000, 1920, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(FITS), width
    ticks = """(id) => [...document.querySelectorAll(`#${id} svg.plot`)].map(
        (plot) => [...plot.querySelectorAll('text')].map((one) => one.textContent))"""
    first, other = page.evaluate(ticks, "plan-a"), page.evaluate(ticks, "plan-b")
    assert first == other
    page.get_by_role("button", name="Setting B").click()
    page.get_by_role("button", name="Remove B").click()
    assert page.evaluate(ticks, "plan-a") != other, "one setting has its own axes"
    page.context.close()


def test_long_names_stay_inside_their_figure(browser, service: Running, tmp_path) -> None:
    address = setting(policies=list(PAPERS_POLICIES), codecs=["model", "update+entropy"])
    page = opened(browser, service, address, 1400)
    page.wait_for_selector(READY)
    outside = """(root) => [...root.querySelectorAll('text')].filter((one) => {
        const own = one.getBoundingClientRect(), all = one.closest('svg').getBoundingClientRect();
        const [left, right] = [own.left - all.left, own.right - all.right];
        return left < -1 || right > 1 || own.top < all.top - 1 || own.bottom > all.bottom + 1;
    }).map((one) => one.textContent).filter(Boolean)"""
    assert page.locator("#plan-a").evaluate(outside) == []
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download figure").click()
    waiting.value.save_as(tmp_path / "figure.svg")
    page.goto(f"file://{tmp_path / 'figure.svg'}")
    assert page.evaluate(f"({outside})(document.documentElement)") == []
    assert "--codec model,update+entropy" in page.evaluate("document.documentElement.textContent")
    page.context.close()
