"""The pages in a real browser: knobs, drags, links, downloads; light and dark; keyboard and phone."""

import itertools
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from qccf.rounds.run_folder import write_run
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario
from tests.helpers.pages import READY, SIZES, SMALL, held, opened, setting
from tests.helpers.service import Running, running_service, written_rounds

pytestmark = pytest.mark.browser

TICKS = """[...document.querySelectorAll('#run-figure svg.plot')].map(
    (plot) => [...plot.querySelectorAll('text[text-anchor="end"]')].map((one) => one.textContent))"""


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Running]:
    runs = tmp_path_factory.mktemp("pages") / "runs"
    for policy in ("qccf", "same-size"):
        *_, last = written_rounds(runs / policy, load_scenario("femnist", SMALL | {"policy.name": policy}))
        write_run(runs / policy, last)
    with running_service(runs) as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_planner_opens_without_messages(browser, service: Running, size: str, scheme: str) -> None:
    page = opened(browser, service, setting(), size, color_scheme=scheme)
    page.wait_for_selector(READY)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert page.locator(".results-table tbody tr").count() == 2
    assert page.locator("svg.plot").count() == 5
    assert page.locator(".map .client").count() == 4
    assert page.evaluate("[...document.querySelectorAll('.wide')].every((one) => one.scrollWidth <= one.clientWidth)")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert dark == (scheme == "dark")
    assert "NaN" not in page.evaluate("[...document.querySelectorAll('svg')].map((one) => one.outerHTML).join('')")
    assert page.messages == []


def test_numbers_are_the_planners(browser, service: Running) -> None:
    page = opened(browser, service, setting())
    page.wait_for_selector(READY)
    runs = plan(load_scenario("femnist", SMALL), ["qccf"], 2)
    joules = sum(float(run.energy_j[-1]) for run in runs) / 2
    shown = page.locator(".results-table tbody tr").first.locator("td").first.inner_text()
    assert shown.startswith(f"{1e3 * joules:.3g}")
    assert " mJ" in shown


def test_a_knob_changes_plan_and_address(browser, service: Running) -> None:
    page = opened(browser, service, setting())
    page.wait_for_selector(READY)
    before = page.locator(".results-table").inner_text()
    slider = page.get_by_role("slider", name="Bandwidth per channel in MHz")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2, steps=4)
    assert page.locator(".results-table").inner_text() == before, "nothing is planned before the slider is let go"
    page.mouse.up()
    page.wait_for_function("old => document.querySelector('.results-table')?.innerText !== old", arg=before)
    chosen = held(page)["settings"]["radio.bandwidth_hz"]
    assert 1e5 < chosen < 2e6
    field = page.locator("[id='knob-radio.bandwidth_hz']")
    assert float(field.input_value()) == pytest.approx(chosen / 1e6)
    field.fill("20")
    field.press("Enter")
    page.wait_for_function("() => location.hash.includes('20000000')")
    page.reload()
    page.wait_for_selector(READY)
    assert field.input_value() == "20"
    assert page.messages == []


def test_devices_and_radio_are_chosen(browser, service: Running) -> None:
    """A preset with a mix, one profile, a mix of one's own, the rate model; and the command that plans the same."""
    page = opened(browser, service, setting(preset="3gpp", policies=["qccf"], seeds=1))
    page.wait_for_selector(READY)
    device, clock = page.locator("[id='knob-devices.profile']"), page.locator("[id='knob-device.frequency_max_hz']")
    shares = page.get_by_role("group", name="Shares of devices")
    assert device.locator("option:checked").inner_text() == "mix"
    assert page.locator("[id='share-pixel-2']").input_value() == "5"
    assert not clock.is_visible(), "a profile states its clock"
    before = page.locator(".results-table").inner_text()
    device.select_option("raspberry-pi-4")
    page.wait_for_function(
        "old => !['', old].includes(document.querySelector('.results-table')?.innerText)", arg=before
    )
    assert held(page)["settings"] == SMALL | {"devices.profile": "raspberry-pi-4"}
    assert not shares.is_visible()
    device.select_option("paper")
    assert clock.is_visible()
    assert held(page)["settings"] == SMALL | {"devices.profile": "paper"}, "the preset has a mix, so paper is stated"
    clock.fill("0.9")
    clock.press("Enter")
    device.select_option("mix")
    assert held(page)["settings"] == SMALL, "the preset's mix, without the clock of the paper's device"
    page.locator("[id='share-pixel-2']").fill("0")
    page.locator("[id='share-pixel-2']").press("Enter")
    page.locator("[id='knob-radio.rate']").select_option("shannon")
    mix = {"galaxy-s6": 5, "raspberry-pi-4": 4, "raspberry-pi-5": 3, "jetson-orin-nano": 1, "laptop": 2}
    assert held(page)["settings"] == SMALL | {"devices.mix": mix, "radio.rate": "shannon"}
    page.wait_for_selector(READY)
    assert page.locator(".refused").is_hidden()
    page.get_by_role("button", name="Copy as command").click()
    command = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    chosen = [one for flag, one in itertools.pairwise(command) if flag == "--set"]
    scenario = load_scenario(command[2], chosen)
    assert scenario.devices.mix == mix
    assert scenario.radio.rate == "shannon"
    assert page.messages == []


def test_a_word_in_place_of_a_number_is_shown(browser, service: Running) -> None:
    page = opened(browser, service, setting(preset="iot", policies=["qccf"], seeds=1))
    page.wait_for_selector(READY)
    field = page.locator("[id='knob-device.cycles_per_sample']")
    assert field.input_value() == ""
    assert field.get_attribute("placeholder") == "auto"
    assert page.messages == []


def test_arrow_keys_move_every_slider(browser, service: Running) -> None:
    """Also of whole numbers, of which one step of the slider is less than one."""
    page = opened(browser, service, setting())
    page.wait_for_selector(READY)
    for label, path, factor in (("Clients", "federation.num_clients", 1), ("Channels", "radio.num_channels", 1)):
        slider, field = page.get_by_role("slider", name=label, exact=True), page.locator(f"[id='knob-{path}']")
        before = int(field.input_value())
        slider.focus()
        for key, wanted in (("ArrowRight", 1), ("ArrowUp", 2), ("ArrowLeft", 1), ("ArrowDown", 0), ("ArrowLeft", -1)):
            page.keyboard.press(key)
            assert int(field.input_value()) == before + factor * wanted
        page.keyboard.press("Home")
        page.keyboard.press("ArrowLeft")
        assert field.input_value() == "1"
        page.keyboard.press("ArrowRight")
        assert field.input_value() == "2"
    slider, field = page.get_by_role("slider", name="Deadline in ms"), page.locator("[id='knob-device.deadline_s']")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert 20.0 < float(field.input_value()) < 20.5
    page.wait_for_selector(READY)
    assert held(page)["settings"]["federation.num_clients"] == 2
    assert page.messages == []


def test_a_client_is_dragged_by_mouse_and_keyboard(browser, service: Running) -> None:
    page = opened(browser, service, setting())
    page.wait_for_selector(READY)
    first = page.locator(".map .client").first
    box, area = first.bounding_box(), page.locator(".map").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.5, area["y"] + area["height"] * 0.3, steps=6)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('positions_m')")
    x, y = held(page)["settings"]["cell.positions_m"][0]
    assert abs(x) < 15
    assert 150 < y < 300
    page.wait_for_selector(READY)
    first.focus()
    page.keyboard.press("ArrowRight")
    place = "JSON.parse(new URLSearchParams(location.hash.slice(1)).get('a')).settings['cell.positions_m'][0][0]"
    page.wait_for_function(f"x => {place} > x", arg=x + 9)
    moved = held(page)["settings"]["cell.positions_m"][0]
    assert moved == pytest.approx([x + 10, y], abs=0.2)
    assert page.evaluate("document.activeElement.dataset.client") == "0", "the focus stays on the client"
    page.wait_for_selector(READY)
    page.get_by_role("button", name="Draw positions again").click()
    page.wait_for_function("() => !location.hash.includes('positions_m')")
    assert page.messages == []


def test_nobody_is_dragged_out_of_the_cell(browser, service: Running) -> None:
    page = opened(browser, service, setting())
    page.wait_for_selector(READY)
    box, area = page.locator(".map .client").first.bounding_box(), page.locator(".map").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(area["x"] + 2, area["y"] + 2, steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('positions_m')")
    x, y = held(page)["settings"]["cell.positions_m"][0]
    assert 498 < (x * x + y * y) ** 0.5 < 500
    page.wait_for_selector(READY)
    assert page.locator(".refused").is_hidden()


def test_two_settings_side_by_side(browser, service: Running) -> None:
    page = opened(browser, service, setting())
    page.wait_for_selector(READY)
    page.get_by_role("button", name="Add setting B").click()
    page.locator("[id='knob-device.deadline_s']").fill("40")
    page.locator("[id='knob-device.deadline_s']").press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.scene-view[aria-busy=\"false\"]').length === 2")
    assert "device.deadline_s" not in held(page, "a")["settings"]
    assert held(page, "b")["settings"]["device.deadline_s"] == 0.04
    left, right = (one.bounding_box() for one in page.locator(".scene-view").all())
    assert right["x"] > left["x"] + left["width"] - 1
    assert page.locator(".results-table").count() == 2
    page.get_by_role("button", name="Setting A").click()
    assert page.locator("[id='knob-device.deadline_s']").input_value() == "20"
    page.get_by_role("button", name="Remove B").click()
    assert page.locator(".scene-view").count() == 1
    assert page.messages == []


def test_what_is_wrong_is_said(browser, service: Running) -> None:
    far = SMALL | {"radio.bandwidth_hz": 1e3, "codec.name": "model"}
    page = opened(browser, service, setting(settings=far))
    refused = page.locator(".refused:visible")
    refused.wait_for()
    assert "no client can ever upload within device.deadline_s = 0.02" in refused.inner_text()
    page.wait_for_selector(".never-list li")
    assert "Mb/s at its best" in page.locator(".never-list li").first.inner_text()
    odd = setting(settings={"federation.rounds": 5, "no.such": "<img src=x onerror=alert(1)>"})
    page.goto("about:blank")
    page.goto(service.address + odd)
    refused.wait_for()
    assert "no is not a setting" in refused.inner_text()
    assert page.locator("main img").count() == 0


def test_command_link_and_files(browser, service: Running, tmp_path: Path) -> None:
    page = opened(browser, service, setting(settings=SMALL | {"radio.gain_db": 3}, codecs=["model", "update+entropy"]))
    page.wait_for_selector(READY)
    page.get_by_role("button", name="Copy as command").click()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command == (
        "qccf plan femnist --seeds 2 --policy qccf,no-quantization --codec model,update+entropy "
        "--set federation.num_clients=4 --set federation.rounds=5 --set radio.gain_db=3"
    )
    page.get_by_role("button", name="Copy link").click()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download TOML").click()
    waiting.value.save_as(tmp_path / "mine.toml")
    assert load_scenario(tmp_path / "mine.toml") == load_scenario("femnist", SMALL | {"radio.gain_db": 3})
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download figure").click()
    waiting.value.save_as(tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text()
    assert drawn.startswith("<svg")
    assert drawn.count('class="plot"') == 5
    assert "Energy of the whole run" in drawn
    assert page.messages == []


def test_runs_are_listed_and_compared(browser, service: Running) -> None:
    page = opened(browser, service, "/runs")
    page.locator(".run-list tbody tr").nth(1).wait_for()
    assert page.locator(".spark path").count() == 2
    for box in page.locator(".run-list input").all():
        box.check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.wait_for_selector("#run-figure svg.plot")
    assert page.locator("#detail tbody tr").count() == 2
    assert page.locator("#run-figure .legend button").count() == 2
    page.get_by_role("link", name="same-size").click()
    page.wait_for_selector(".tiles")
    assert "finished" in page.locator(".tiles").inner_text()
    assert page.locator("#detail .map .client").count() > 3
    assert page.messages == []


@pytest.mark.parametrize("size", SIZES)
def test_a_run_is_live(browser, service: Running, size: str) -> None:
    """The page follows a run that is written while it is open."""
    name = f"live-{size}"
    flat_price = {"federation.num_clients": 10}  # its price of error differs in the sixth digit only
    written = written_rounds(service.runs / name, load_scenario("femnist", SMALL | flat_price))
    next(written)
    page = opened(browser, service, "/runs", size)
    page.get_by_role("link", name=name).click()
    for number in range(2, 6):
        run = next(written)
        page.wait_for_function("k => Number(document.getElementById('detail').dataset.rounds) === k", arg=number)
        assert "running" in page.locator(".tiles").inner_text()
        assert f"{number} of 5" in page.locator(".tiles").inner_text()
    write_run(service.runs / name, run)
    page.wait_for_function("() => document.querySelector('.tiles').innerText.includes('finished')")
    assert page.locator("#run-figure svg.plot").count() >= 6
    for labels in page.evaluate(TICKS):
        assert len(set(labels)) == len(labels), "the ticks of an axis have the same label"
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert page.messages == []
    shutil.rmtree(service.runs / name)


def test_the_list_stays_fresh_while_something_in_it_has_the_focus(browser, service: Running) -> None:
    page = opened(browser, service, "/runs")
    page.locator(".run-list tbody tr").nth(1).wait_for()
    box = page.get_by_label("Compare same-size")
    box.check()
    assert page.evaluate("document.activeElement.localName") == "input"
    next(written_rounds(service.runs / "newcomer", load_scenario("femnist", SMALL)))
    page.get_by_role("link", name="newcomer").wait_for()
    assert box.is_checked()
    assert page.evaluate("document.activeElement.ariaLabel") == "Compare same-size", "the focus stays where it was"
    shutil.rmtree(service.runs / "newcomer")


def test_live_pages_recover_after_a_restart(browser, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    written = written_rounds(runs / "live", load_scenario("femnist", SMALL))
    next(written)
    with running_service(runs) as first:
        listed = opened(browser, first, "/runs")
        listed.get_by_role("link", name="live").wait_for()
        name = first.client.get("/v1/runs").json()[0]["id"]
        page = opened(browser, first, f"/runs#run={name}")
        page.wait_for_function("() => document.getElementById('detail').dataset.rounds === '1'")
        port = first.address.rpartition(":")[2]
    for one in (listed, page):
        one.locator("#refused:visible").wait_for()
    next(written)
    with running_service(runs, "--port", port):
        page.wait_for_function("() => document.getElementById('detail').dataset.rounds === '2'")
        listed.wait_for_function("() => document.querySelector('.run-list')?.innerText.includes('2 of 5')")
        for one in (listed, page):
            one.locator("#refused").wait_for(state="hidden")


def test_events_can_be_tried_and_stopped(browser, service: Running) -> None:
    name = service.client.get("/v1/runs").json()[0]["id"]
    page = opened(browser, service, "/docs")
    page.locator(".operation summary code", has_text=re.compile("/events$")).click()
    operation = page.locator(".operation[open]")
    operation.locator("input").fill(name)
    operation.get_by_role("button", name="Send").click()
    operation.locator("pre", has_text="event: changed").wait_for()
    operation.get_by_role("button", name="Stop").click()
    operation.locator("pre", has_text="Stopped.").wait_for()
    assert operation.get_by_role("button", name="Send").is_visible()


def test_the_api_can_be_tried(browser, service: Running) -> None:
    page = opened(browser, service, "/docs")
    page.locator(".operation summary code", has_text=re.compile("^/v1/cell$")).click()
    page.locator(".operation[open] textarea").fill('{"settings": {"federation.num_clients": 2}}')
    page.locator(".operation[open]").get_by_role("button", name="Send").click()
    page.wait_for_function("() => document.querySelector('.operation[open] > pre').innerText.startsWith('200')")
    assert page.messages == []


def test_a_token_is_asked_for_once(browser, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "token").write_text("a-secret-of-many-letters")
    with running_service(tmp_path / "runs", "--token", str(tmp_path / "token")) as guarded:
        page = opened(browser, guarded, setting())
        page.get_by_label("Token").fill("a-wrong-secret-of-letters")
        assert page.locator("dialog .refused").count() == 0
        page.get_by_role("button", name="Use this token").click()
        page.locator("dialog .refused", has_text="The service refused this token").wait_for()
        page.get_by_label("Token").fill("a-secret-of-many-letters")
        page.get_by_role("button", name="Use this token").click()
        page.wait_for_selector(READY)
        assert page.locator(".results-table tbody tr").count() == 2
        page.reload()
        page.wait_for_selector(READY)
        assert page.locator("dialog").count() == 0
