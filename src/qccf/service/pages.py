"""The pages and what they load, all from this package."""

from importlib import resources

from qccf.service.answers import Answer

PAGES = {"/": "planner.html", "/runs": "runs.html", "/docs": "docs.html"}
"""The file of each page by its path."""

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
OURS = (
    "planner.html", "runs.html", "docs.html", "service.css", "common.js", "map.js", "planner.js", "runs.js", "docs.js",
)  # fmt: skip
REPORTS = ("page.css", "charts.js")
"""Style and charts of the report."""


def load_files() -> dict[str, Answer]:
    """Every file by its name."""
    places = dict.fromkeys(OURS, "qccf.service") | dict.fromkeys(REPORTS, "qccf.reports.page")
    return {
        name: Answer(200, resources.files(place).joinpath("assets", name).read_bytes(), TYPES[name.rpartition(".")[2]])
        for name, place in places.items()
    }
