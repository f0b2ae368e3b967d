"""Shared fixtures, and the order in which test files run."""

import base64
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EMPTY = {
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>',
    "pdf": b"%PDF-1.4\n%%EOF\n",
    "png": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    ),
}
"""The smallest files of each kind."""

EARLY = ("deployment", "long", "slow")


def pytest_configure() -> None:
    """Children of the tests must receive Ctrl-C also where pytest was started with SIGINT ignored (`nohup`, `&`)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with deployment tests first because they mostly wait, then files with slow tests, so that no worker ends
    with a long one."""
    order: dict[Path, int] = {}
    for item in items:
        rank = next((rank for rank, name in enumerate(EARLY) if item.get_closest_marker(name)), len(EARLY))
        order[item.path] = min(rank, order.get(item.path, len(EARLY)))
    items.sort(key=lambda item: order[item.path])


@pytest.fixture(autouse=True)
def _empty_files_of_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are built, but their files are not drawn: that is most of the time of a small run. Tests of what a file
    shows are marked `drawn`."""
    if "qccf.reports.figures.drawing" in sys.modules and not request.node.get_closest_marker("drawn"):
        monkeypatch.setattr("qccf.reports.figures.drawing.ChartFigure.savefig", _save_empty)


def _save_empty(_: Any, file: Any, *, format: str, **__: Any) -> None:  # noqa: A002
    file.write(EMPTY[format])


@pytest.fixture
def empty_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """QCCF_DATA names a folder without datasets."""
    folder = tmp_path / "data"
    monkeypatch.setenv("QCCF_DATA", str(folder))
    return folder


@pytest.fixture
def tiny_source(monkeypatch: pytest.MonkeyPatch, empty_data_folder: Path) -> Path:
    """The dataset `tiny` is registered, and QCCF_DATA names a folder without datasets."""
    from qccf.learning.datasets import DATASETS
    from tests.helpers.tiny import TinySource

    monkeypatch.setitem(DATASETS, "tiny", TinySource)
    return empty_data_folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for tests marked `browser`. While it runs, so does an event loop, which other files must not find."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install 'qccf[browser]'")
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    chromium = next(filter(None, found), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine: run `make browser` as root")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
