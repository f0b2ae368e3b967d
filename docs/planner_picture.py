"""Write docs/images/planner.png: the planner's page as Chromium shows it.

Run: python docs/planner_picture.py, with the extras `serve` and `browser` and a Chromium.
"""

import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

TARGET = Path(__file__).resolve().parent / "images" / "planner.png"
SETTING = {
    "preset": "femnist",
    "settings": {"federation.rounds": 30, "data.dataset_size_std": 300, "cell.radius_m": 400},
    "policies": ["qccf", "channel-allocate", "principle", "same-size"],
    "codecs": ["model"],
    "seeds": 6,
}
PATIENCE_MS = 300_000
COLOURS = 64


def main() -> None:
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "qccf", "serve", "--port", "0", "--runs", runs]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            found = re.search(r"http://[\w.:]+/", service.stdout.readline())
            assert found is not None
            try:
                picture = photographed(f"{found[0]}#a={quote(json.dumps(SETTING, separators=(',', ':')))}")
            finally:
                service.terminate()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(TARGET, optimize=True)


def photographed(address: str) -> bytes:
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1320, "height": 860})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(address)
        page.wait_for_selector('.scene-view[aria-busy="false"]')
        picture = page.screenshot()
        browser.close()
    return picture


if __name__ == "__main__":
    main()
