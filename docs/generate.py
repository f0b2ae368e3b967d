"""Write the documents that are made from code: the paper map, the command line, the settings, and the pictures.

Run: python docs/generate.py [--pictures]. A test compares the texts with the code.
"""

import argparse
import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

SOURCE = ROOT / "src" / "qccf"
NUMERALS = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6}
SHOWN_TESTS = 3
# The section of a symbol, for citations that name no section.
PLACES = {
    "Lemma 1": "II-B", "Eq. of global aggregation": "II-A", "C6": "IV-C", "C7": "IV-C", "P2": "V-A", "P1": "IV-C",
    "Algorithm 1": "V-D", "J4": "V-D", "N_pop": "V-D", "τ_e·γ·D": "IV-B", "E_cmp": "IV-B", "h_Rician": "IV-A",
    "v = B": "IV-A", "first-order step": "V-C", "Figs. 2": "VI",
}  # fmt: skip


def paper_map() -> str:
    """A table of every function, class and module whose docstring cites the paper, with the tests that use it."""
    uses = _uses_in_tests()
    rows = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(SOURCE).as_posix()
        own = _citation(ast.get_docstring(tree))
        for name, text in _cited(tree):
            place = _place(text) or _place(own or "") or ""
            label = f"`{where}`" + (f" `{name}`" if name else "")
            module = _module_name(path)
            package = module.rpartition(".")[0]
            found = uses.get(f"{module}:{name}") or uses.get(f"{package}:{name}") or uses.get(module, [])
            rows.append((_order(place), place, text, label, _tests(found), _deviates(tree, name)))
    lines = [
        "---",
        "hide: [toc]",
        "---",
        "",
        "# Paper map",
        "",
        "From the paper to the function to its tests. `make docs` writes this page from the `Paper:` and `Deviates:`",
        "lines of docstrings and from the names that tests use; a test compares it with the code.",
        "",
        "| section | what is cited | where | deviates | tests |",
        "|---|---|---|---|---|",
    ]
    for _, place, text, label, tests, deviates in sorted(rows):
        lines.append(f"| {place} | {text} | {label} | {deviates} | {tests} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def _cited(tree: ast.Module) -> list[tuple[str, str]]:
    found = []
    if text := _citation(ast.get_docstring(tree)):
        found.append(("", text))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := _citation(ast.get_docstring(node))):
            found.append((node.name, text))
    return found


def _citation(docstring: str | None) -> str | None:
    """The sentence after `Paper:`."""
    flat = re.sub(r"\s+", " ", docstring or "")
    match = re.search(
        r"Paper: (.+?)(?:\.(?= [A-Z]|$)|$)", flat.replace("Eq. ", "Eq.\u00a0").replace("Figs. ", "Figs.\u00a0")
    )
    return match[1].replace("\u00a0", " ").replace("|", "\\|") if match else None


def _deviates(tree: ast.Module, name: str) -> str:
    named = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [n for n in ast.walk(tree) if isinstance(n, named) and getattr(n, "name", "") == name]
    sentences = [m[1] for n in nodes for m in re.finditer(r"Deviates: ([^.]*)", ast.get_docstring(n) or "")]
    keys = [key for sentence in sentences for key in re.findall(r"E\d+", sentence)]
    return ", ".join(dict.fromkeys(keys))


def _place(text: str) -> str:
    if match := re.search(r"Sections? ([IV]+(?:-[A-Z])?)", text):
        return match[1]
    return next((place for symbol, place in PLACES.items() if symbol in text), "")


def _order(place: str) -> tuple[int, str]:
    numeral, _, letter = place.partition("-")
    return NUMERALS.get(numeral, 9), letter


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _uses_in_tests() -> dict[str, list[str]]:
    """Maps each module to the test files that import it, and `module:name` to the tests in them that use the name."""
    uses: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.parent.name == "docs":
            continue  # these test documents, not formulas
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(ROOT).as_posix()
        modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        modules |= {f"{n.module}.{a.name}" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        helpers: dict[str, set[str]] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                names |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                helpers[node.name] = names
        for name, used in helpers.items():
            if not name.startswith("test_"):
                continue
            reached = used | {u for helper in used & set(helpers) for u in helpers[helper]}
            for module in modules:
                is_package = (SOURCE.parent / module.replace(".", "/")).is_dir()
                for one in reached:  # a package counts only for names imported from it, a module also for its methods
                    if not is_package or f"{module}.{one}" in modules:
                        uses.setdefault(f"{module}:{one}", []).append(f"{where}::{name}")
        for module in modules:
            uses.setdefault(module, []).append(where)
            package = module.rpartition(".")[0]
            if package.startswith("qccf."):
                uses.setdefault(package, []).append(where)
    return uses


def _tests(found: list[str]) -> str:
    unique = list(dict.fromkeys(found))
    shown = ", ".join(f"`{name.removeprefix('tests/')}`" for name in unique[:SHOWN_TESTS])
    more = len(unique) - SHOWN_TESTS
    return shown + (f" and {more} more" if more > 0 else "")


def command_line() -> str:
    """Every command and option, from the parser."""
    from qccf.cli.main import parser

    lines = [
        "# Command line",
        "",
        "`make docs` writes this page from the parser. A user error ends with one sentence and exit status 2, an",
        "interrupt with status 130. Every command has `--help`, and `--debug`, which shows the traceback of an error.",
    ]
    lists: dict[str, Mapping[str, str]] = {}
    top = parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        lines += ["", f"## `qccf {name}`", "", command.description or "", "", "| argument | meaning |", "|---|---|"]
        for action in command._actions:
            if {"--help", "--debug"} & set(action.option_strings):
                continue
            choices = "|".join(map(str, action.choices)) if action.choices else ""
            value = str(action.metavar or choices or action.dest)
            takes = (
                "" if action.nargs == 0 else f"[{value}]" if action.nargs == "?" and action.option_strings else value
            )
            words = " ".join(word for word in (*action.option_strings, takes) if word)
            lines.append(f"| `{_cell(words)}` | {_cell((action.help or '').replace(' (see below)', ''))} |")
        lists |= command.lists
        if command.examples:
            lines += ["", "```", *(f"{line}  # {text}" for line, text in command.examples.items()), "```"]
    for title, entries in lists.items():
        lines += ["", f"## {title}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in entries.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def settings() -> str:
    """Every setting with meaning, unit, default and limits, from the schema."""
    from qccf.settings.reference import section_descriptions, settings_reference

    lines = [
        "---",
        "hide: [toc]",
        "---",
        "",
        "# Settings",
        "",
        "`make docs` writes this page from the schema; `qccf settings [SECTION]` shows the same in the terminal. A",
        'settings file is TOML with these sections. It may begin with `preset = "name"` and then states only what',
        "differs from that preset. On the command line `--set section.key=value` overrides one key. A value outside",
        "its limits is refused.",
    ]
    reference = settings_reference()
    for section, description in section_descriptions().items():
        lines += ["", f"## `[{section}]`", "", description, ""]
        lines += ["| key | meaning | unit | default | limits |", "|---|---|---|---|---|"]
        for one in (info for info in reference if info.section == section):
            default = one.default if one.default == "empty" else f"`{one.default}`"
            cells = (f"`{one.key}`", one.description, one.unit, default, one.limits or one.choices)
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def pictures() -> None:
    """The pictures of `docs/idea.md`, drawn with numbers that the code computes."""
    import numpy as np

    from qccf.core.contracts import Observation
    from qccf.devices.cost import compute_energy_j, slowest_frequency_hz, training_cycles
    from qccf.reports.figures.builders import BAND, BITS_LABEL, SIZES_LABEL, curves, grouped
    from qccf.reports.figures.chart import Chart, Panel, Series
    from qccf.reports.figures.drawing import save_chart
    from qccf.reports.figures.style import Styles
    from qccf.rounds.setup import build_policy
    from qccf.rounds.sources import StatisticsModel
    from qccf.runtimes.planner import plan
    from qccf.settings.loading import load_scenario

    # The pictures are of the paper's form, whose idea they explain.
    def save(key: str, *panels: Panel, caption: str = "") -> None:
        chart = Chart(key, "", caption, panels, panel_size_inch=(4.5, 3.0))
        save_chart(chart, ROOT / "docs" / "images" / f"{key}.svg")

    scenario = load_scenario(
        "femnist",
        [
            "statistics.model=trace",
            "statistics.trace=growing-weights",
            "control.form=paper",
            "codec.name=model",
        ],
    )
    c = scenario.constants()
    bits = np.arange(1.0, 11.0)
    speeds, energies = [], []
    for size, colour in ((900.0, "#56B4E9"), (1200.0, "#0072B2"), (1500.0, "#000000")):
        upload_s = (c.num_parameters * (bits + 1.0) + 32.0) / 100e6
        cycles = training_cycles(np.array([size]), c)
        frequency_hz = slowest_frequency_hz(cycles, upload_s, c)
        seen = np.isfinite(frequency_hz)
        energy_j = compute_energy_j(cycles, frequency_hz, c) + c.transmit_power_w * upload_s
        name = f"{size:g} samples"
        speeds.append(Series(name, bits[seen], frequency_hz[seen] / 1e6, colour, "o"))
        energies.append(Series(name, bits[seen], energy_j[seen] * 1e3, colour, "o"))
    limit = ((c.frequency_max_hz / 1e6, "highest frequency"),)
    save(
        "idea-deadline",
        Panel(
            "More bits leave less time to compute",
            "bits per parameter",
            "lowest CPU frequency in time (MHz)",
            tuple(speeds),
            references=limit,
        ),
        Panel("A faster CPU needs more energy", "bits per parameter", "energy of the client (mJ)", tuple(energies)),
    )

    sizes = np.linspace(600.0, 1800.0, 10)
    statistics = StatisticsModel(scenario, sizes).known(50)
    links = [Observation(np.full((10, 10), rate_bps), statistics) for rate_bps in np.arange(80e6, 151e6, 1e6)]
    runs = plan(scenario, ["qccf", "same-size"], 8)
    styles = Styles(runs)
    chosen = []
    for name in ("qccf", "same-size"):
        policy = build_policy(name, scenario)
        state = policy.init(statistics) | {"quantization_queue": 3.0}
        mean = np.mean([policy.decide(state, link, np.random.default_rng(0)).num_bits for link in links], axis=0)
        chosen.append(Series(name, sizes, mean, *styles.policies[name]))
    over_rounds = curves(grouped(runs), lambda run: run.mean_bits, styles)
    save(
        "idea-bits",
        Panel("Bits rise as training converges", "round", BITS_LABEL, over_rounds, integers=True),
        Panel("Bits fall with the data of a client, all links alike", SIZES_LABEL, BITS_LABEL, tuple(chosen)),
        caption=BAND,
    )


DOCUMENTS = {"paper-map.md": paper_map, "cli.md": command_line, "settings.md": settings}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pictures", action="store_true", help="draw the pictures as well")
    for name, text in DOCUMENTS.items():
        (ROOT / "docs" / name).write_text(text(), encoding="utf-8")
    deviations = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    (SOURCE / "reports" / "page" / "assets" / "deviations.md").write_text(deviations, encoding="utf-8")
    if options.parse_args().pictures:
        pictures()


if __name__ == "__main__":
    main()
