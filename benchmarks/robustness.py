"""The policies in a bank of seeded scenarios, 200 rounds each without training, and five criteria for QCCF.

Run: python -m benchmarks.robustness [--seed 0] [--count 300] [--form scale-free] [--jobs 2] [--only NAME]
Each scenario's results are one JSON file below --out. A second run computes only what is missing or was computed with
other code.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import qccf
from qccf.core.contracts import FloatArray
from qccf.core.files import write_text_whole
from qccf.policies.qccf import QccfOptions
from qccf.rounds.health import jain_index
from qccf.rounds.run import Run
from qccf.rounds.setup import build_rules, scenario_codec
from qccf.runtimes.planner import run_rounds
from support.scenario_bank import BankScenario, BankSource, named_scenarios, scenarios

QCCF = "qccf"
BASELINES = ("same-size", "channel-allocate", "principle", "no-quantization")
LOOSER_FACTORS = (3.0,)
LOOSER_KNOBS = {
    "scale-free": ("slack", "energy_weight"),
    "paper": ("paper.quantization_budget", "paper.energy_weight"),
}
DEFAULT_SLACK = QccfOptions().slack
"""The slack by which a policy without targets of its own is measured."""

ABLE_SHARE = 0.5
FAIR_SHARE = 0.5
ERROR_LIMIT = 1.1
ENERGY_LIMIT = 1.01
SHARE_OF_SCENARIOS = 0.95
SAME = 1e-6
"""Relative differences below this do not make a baseline better."""
SAME_FAIRNESS = 0.01
"""A baseline whose Jain's index is lower by at most this serves its clients as evenly."""


def metrics(run: Run) -> dict[str, Any]:
    """The run in figures. Errors are means over rounds in which something arrived."""
    able, arrived, on = (run.by_round(name) for name in ("able", "arrived", "participated"))
    uploads, fair = arrived.sum(axis=0), run.by_round("turn").sum(axis=0)
    often = able.mean(axis=0) >= ABLE_SHARE
    used = arrived.any(axis=1)
    errors, budgets = run.round_columns["aggregate_error"][used], error_budgets(run)[used]
    ratios = errors / budgets
    return {
        "rounds": run.num_rounds,
        "empty_though_able": int((able.any(axis=1) & ~on.any(axis=1)).sum()),
        "rounds_somebody_able": int(able.any(axis=1).sum()),
        "able_share": able.mean(axis=0).round(4).tolist(),
        "uploads": uploads.tolist(),
        "fair_uploads": fair.round(2).tolist(),
        "least_fair_share": float((uploads[often] / fair[often]).min()) if often.any() else None,
        "fairness": jain_index(uploads[fair > 0.0] / fair[fair > 0.0]),
        "participation": float(arrived.mean()),
        "missed": int(run.client_columns["missed"].sum()),
        "energy_j": float(run.energy_j[-1]),
        "mean_error": float(errors.mean()) if used.any() else None,
        "error_to_budget": float(ratios.mean()) if used.any() else None,
        "mean_bits": run.mean_upload_bits() if on.any() else None,
        "findings": sorted({finding.kind for finding in run.findings}),
    }


def error_budgets(run: Run) -> FloatArray:
    """Each round's error budget: the policy's own, or DEFAULT_SLACK times the least error of its participants."""
    own = np.asarray(run.round_columns["error_budget"], dtype=float)
    if np.isfinite(own).any():
        return own
    sent = np.where(run.by_round("arrived"), run.dataset_sizes, 0.0)
    weights = sent / np.maximum(sent.sum(axis=1, keepdims=True), 1.0)
    table = run.statistics_columns["upload_errors"]
    most = np.maximum(run.client_columns["most_bits"], 1)
    least = table[np.arange(len(table)), most - 1].reshape(weights.shape)
    return np.asarray(DEFAULT_SLACK * (np.square(weights) * least).sum(axis=1))


def play(one: BankScenario, policy: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """One policy through all rounds of a scenario, by the round code of `qccf plan`."""
    return metrics(planned(one, policy, changes))


def planned(one: BankScenario, policy: str, changes: Mapping[str, Any]) -> Run:
    strongest = {"no_quantization.enforce_deadline": True, "same_size.cpu": "joint"}
    scenario = one.scenario({**changes, **strongest, "policy.name": policy})
    world = one.world()
    source = BankSource(scenario, one.clients, world.dataset_sizes)
    return run_rounds(world, build_rules(scenario, scenario_codec(scenario)), source, scenario)


def planned_runs(
    form: str, knobs: Mapping[str, Any], parts: Sequence[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Label, policy and settings of each run of a scenario; a looser budget has the factor as its value."""
    base = {"control.form": form, **knobs}
    if "qccf" in parts:
        yield QCCF, QCCF, base
    if "baselines" in parts:
        for name in BASELINES:
            yield name, name, base
    if "looser" in parts:
        for knob in LOOSER_KNOBS[form]:
            for factor in LOOSER_FACTORS:
                yield f"{knob} × {factor:g}", QCCF, base | {f"control.{knob}": factor}


def multiplied(one: BankScenario, changes: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The changes of a run with a looser budget: its factor times the value that the scenario has."""
    if " × " not in label:
        return dict(changes)
    knob, factor = label.split(" × ")
    path = f"control.{knob}"
    others = {key: value for key, value in changes.items() if key != path}
    value: Any = one.scenario(others)
    for name in path.split("."):
        value = getattr(value, name)
    return {**others, path: float(factor) * value}


@cache
def code_digest(whole: bool) -> str:
    """A digest of the code that decides and settles; `whole` includes what only QCCF and same-size use."""
    root = Path(qccf.__file__).parent
    names = ["core", "quantization", "wireless", "devices", "policies", "rounds", "settings"] + ["control"] * whole
    paths = [path for name in names for path in sorted((root / name).rglob("*.py"))]
    paths += [root / "control" / "matching.py", root / "runtimes" / "planner.py"]
    own = [] if whole else [root / "policies" / "qccf.py", root / "policies" / "same_size.py"]
    here = [Path(__file__), Path(__file__).parent.parent / "support" / "scenario_bank.py"]
    hashed = hashlib.sha256()
    for path in [*paths, *here]:
        if path not in own and path.suffix == ".py":
            hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


@dataclass(frozen=True)
class Task:
    """One scenario with the runs to do."""

    one: BankScenario
    path: Path
    form: str
    knobs: dict[str, Any]
    parts: tuple[str, ...]

    def done(self) -> dict[str, Any]:
        """The runs in the file that are still valid."""
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if saved.get("scenario") != self.one.to_json():
            return {}
        return {label: run for label, run in saved["runs"].items() if run["key"] == self.key(label)}

    def key(self, label: str) -> str:
        whole = label not in BASELINES or label == "same-size"
        return f"{code_digest(whole)} {self.form if whole else ''} {self.knobs if whole else ''}"

    def missing(self) -> list[tuple[str, str, dict[str, Any]]]:
        done = self.done()
        return [run for run in planned_runs(self.form, self.knobs, self.parts) if run[0] not in done]


def compute(task: Task) -> str:
    """Play what is missing of a task and write its file."""
    runs = task.done()
    for label, policy, changes in task.missing():
        command = multiprocessing.parent_process()
        if command is not None and not command.is_alive():
            os._exit(1)  # a stopped command leaves no process behind
        try:
            found = play(task.one, policy, multiplied(task.one, changes, label))
        except Exception as error:  # is a failure of the policy, and the bank goes on
            found = {"crash": f"{type(error).__name__}: {error}"}
        runs[label] = {"key": task.key(label), **found}
        content = {"scenario": task.one.to_json(), "form": task.form, "runs": runs}
        write_text_whole(task.path, json.dumps(content, indent=1))
    return task.one.name


@dataclass(frozen=True)
class Verdict:
    """A criterion in one scenario: whether it holds, and the figure that it is judged by."""

    passed: bool
    figure: float
    text: str


def verdicts(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Verdict]:
    """The criteria in one scenario, as far as the runs for them exist; none where nobody is ever able."""
    crashes = [f"{label}: {run['crash']}" for label, run in runs.items() if "crash" in run]
    found = {"0": Verdict(not crashes, len(crashes), "; ".join(crashes))}
    runs = {label: run for label, run in runs.items() if "crash" not in run}
    if QCCF not in runs:
        return found
    ours = runs[QCCF]
    if not ours["rounds_somebody_able"]:
        return {} if not crashes else found
    empty = ours["empty_though_able"]
    found |= {
        "a": Verdict(empty == 0, empty, f"{empty} of {ours['rounds_somebody_able']} rounds empty though somebody able")
    }
    least = ours["least_fair_share"]
    if least is not None:
        found["b"] = Verdict(least >= FAIR_SHARE, least, f"a client gets {least:.2f} of its fair share")
    ratio = ours["error_to_budget"]
    if ratio is not None:
        found["c"] = Verdict(ratio <= ERROR_LIMIT, ratio, f"mean error / budget {ratio:.3f}")
    if all(name in runs for name in BASELINES):
        better = [name for name in BASELINES if dominates(runs[name], ours)]
        figures = [f"{name} {_comparison(runs[name], ours)}" for name in better]
        found["d"] = Verdict(not better, len(better), "better: " + "; ".join(figures))
        fair = [name for name in better if (runs[name]["fairness"] or 0.0) >= (ours["fairness"] or 0.0) - SAME_FAIRNESS]
        found["d, fair"] = Verdict(not fair, len(fair), "better and no less fair: " + ", ".join(fair))
    looser = {label: run["energy_j"] for label, run in runs.items() if " × " in label}
    if looser:
        ratios = {label: energy_j / max(ours["energy_j"], 1e-300) for label, energy_j in looser.items()}
        label = max(ratios, key=lambda one: ratios[one])
        most = ratios[label]
        found["e"] = Verdict(most <= ENERGY_LIMIT, most, f"{label} takes {most:.3f} of the energy")
    return found


def dominates(other: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether another policy misses no deadline, takes less energy and errs less, at no less participation."""
    if other["missed"] or other["mean_error"] is None:
        return False
    if ours["mean_error"] is None:
        return True
    return bool(
        other["energy_j"] < ours["energy_j"] * (1.0 - SAME)
        and other["mean_error"] < ours["mean_error"] * (1.0 - SAME)
        and other["participation"] >= ours["participation"]
    )


def _comparison(other: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    if ours["mean_error"] is None:
        return "(ours uploads nothing)"
    energy, error = (other[name] / max(ours[name], 1e-300) for name in ("energy_j", "mean_error"))
    return (
        f"(energy × {energy:.3f}, error × {error:.3g}, takes part {other['participation']:.3f}, "
        f"Jain {other['fairness']:.2f} against {ours['fairness']:.2f})"
    )


CRITERIA = {
    "0": ("every run ends without an error", 1.0, "most runs"),
    "a": ("no round is empty while somebody could upload", 1.0, "most empty rounds"),
    "b": (f"clients able in half of the rounds get {FAIR_SHARE:g} of their fair share", 1.0, "least share"),
    "c": (f"mean error / budget is at most {ERROR_LIMIT:g}", SHARE_OF_SCENARIOS, "largest ratio"),
    "d": ("no baseline in time is better in energy and error", SHARE_OF_SCENARIOS, "baselines better"),
    "d, fair": ("the same, if the baseline serves its clients no less evenly", SHARE_OF_SCENARIOS, "baselines better"),
    "e": (f"a looser budget takes at most {ENERGY_LIMIT:g} of the energy", 1.0, "largest ratio"),
}


def show(results: Mapping[str, Mapping[str, Any]], show_all: bool) -> None:
    judged = {name: verdicts(result["runs"]) for name, result in results.items()}
    never = sum(not found for found in judged.values())
    print(f"{len(judged) - never} scenarios are judged; in {never} others nobody could upload in any round")
    print("\n| criterion | wanted | passed | share | worst | |")
    print("|---|---|---|---|---|---|")
    for key, (words, wanted, figure) in CRITERIA.items():
        mine = [found[key] for found in judged.values() if key in found]
        if mine:
            passed = sum(one.passed for one in mine)
            worst = (min if key == "b" else max)(one.figure for one in mine)
            mark = "ok" if passed >= wanted * len(mine) else "FAILS"
            print(
                f"| ({key}) {words} | {wanted:.0%} | {passed} of {len(mine)} | {passed / len(mine):.1%} | "
                f"{figure} {worst:.4g} | {mark} |"
            )
    _show_policies(results)
    lines = [
        f"({key}) {name}: {verdict.text}"
        for key in CRITERIA
        for name, found in judged.items()
        if key in found and not (verdict := found[key]).passed
    ]
    print(f"\n{len(lines)} failures" + ("" if show_all or len(lines) <= 60 else "; the first 60"))
    for line in lines if show_all else lines[:60]:
        print(line)


def _show_policies(results: Mapping[str, Mapping[str, Any]]) -> None:
    print("\n| run | energy ratio | error ratio | error / budget | participation | fairness | bits | missed | empty |")
    print("|---|---|---|---|---|---|---|---|---|")
    labels = dict.fromkeys(label for result in results.values() for label in result["runs"])
    for label in labels:
        pairs = [
            (result["runs"][label], result["runs"][QCCF])
            for result in results.values()
            if not any("crash" in result["runs"].get(name, {"crash": ""}) for name in (label, QCCF))
        ]

        def ratio(name: str, pairs: Any = pairs) -> float:
            both = [(a[name], b[name]) for a, b in pairs if a[name] and b[name]]
            return float(np.exp(np.mean([np.log(a / b) for a, b in both]))) if both else float("nan")

        def median(name: str, pairs: Any = pairs) -> float:
            values = [a[name] for a, _ in pairs if a[name] is not None]
            return float(np.median(values)) if values else float("nan")

        bits = median("mean_bits")
        missed, empty = (sum(a[name] for a, _ in pairs) for name in ("missed", "empty_though_able"))
        print(
            f"| {label} | {ratio('energy_j'):.3f} | {ratio('mean_error'):.3g} | {median('error_to_budget'):.3g} | "
            f"{median('participation'):.3f} | {median('fairness'):.3f} | {bits:.1f} | {missed} | {empty} |"
        )
    print("(ratios to QCCF: geometric means over scenarios; others: medians; missed and empty: sums)")


def show_drawn(bank: Sequence[BankScenario]) -> None:
    drawn = [one for one in bank if "/" not in one.name]
    print(f"{len(bank)} scenarios: {len(bank) - len(drawn)} named, {len(drawn)} drawn", end="")
    if not drawn:
        print()
        return
    print(f" ({sum(one.redraws for one in drawn)} draws refused because nobody could ever upload)\n")
    print("| drawn | least | 10 % | median | 90 % | most |")
    print("|---|---|---|---|---|---|")
    for path in (
        "federation.num_clients",
        "radio.num_channels",
        "learning.num_parameters",
        "device.deadline_s",
        "device.cycles_per_sample",
        "radio.bandwidth_hz",
        "radio.gain_db",
        "learning.learning_rate",
        "learning.smoothness",
    ):
        section, key = path.split(".")
        values = np.quantile([one.settings[section][key] for one in drawn], [0.0, 0.1, 0.5, 0.9, 1.0])
        print(f"| {path} | " + " | ".join(f"{value:.3g}" for value in values) + " |")


def show_difficulty(results: Mapping[str, Mapping[str, Any]]) -> None:
    shares = [np.mean(result["runs"][QCCF].get("able_share", np.nan)) for result in results.values()]
    quantiles = " ".join(f"{value:.2f}" for value in np.nanquantile(shares, [0.0, 0.1, 0.25, 0.5, 0.75, 1.0]))
    print(f"\nShare of clients and rounds that could upload (least, 10, 25, 50, 75 %, most): {quantiles}")


@contextmanager
def cancelled_on_interrupt(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Without this, Ctrl-C waits until every scenario is computed."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _parsed_knob(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of the bank")
    parser.add_argument("--count", type=int, default=300, help="drawn scenarios; the named ones come on top")
    parser.add_argument("--form", default="scale-free", choices=tuple(LOOSER_KNOBS), help="control.form")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="one scenario; may be repeated")
    parser.add_argument("--parts", default="qccf,baselines,looser", help="which runs, separated by commas")
    parser.add_argument("--set", action="append", default=[], type=_parsed_knob, metavar="control.KEY=NUMBER")
    parser.add_argument("--out", type=Path, default=Path("runs/robustness"))
    parser.add_argument("--all-failures", action="store_true")
    options = parser.parse_args()

    bank = [*named_scenarios(), *scenarios(options.seed, options.count)]
    if options.only:
        bank = [one for one in bank if one.name in options.only]
        if not bank:
            parser.error(f"--only {options.only[0]} names no scenario of this seed and count")
    show_drawn(bank)
    knobs = dict(options.set)
    suffix = "".join(f"-{key.removeprefix('control.')}-{value:g}" for key, value in knobs.items())
    folder = options.out / f"{options.form}{suffix}"
    parts = tuple(options.parts.split(","))
    tasks = [Task(one, folder / f"{one.name.replace('/', '--')}.json", options.form, knobs, parts) for one in bank]
    waiting = [task for task in tasks if task.missing()]
    waiting.sort(key=lambda task: -_work(task.one))
    started = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool, cancelled_on_interrupt(pool):
        total = sum(_work(task.one) for task in waiting)
        futures = {pool.submit(compute, task): task for task in waiting}
        finished = 0.0
        for count, future in enumerate(as_completed(futures), start=1):
            name = future.result()
            finished += _work(futures[future].one)
            if count % 10 == 0 or count == len(waiting) or options.only:
                took = time.monotonic() - started
                share = finished / total
                print(f"{count} of {len(waiting)} ({share:.0%} of the work, {took:.0f} s): {name}", flush=True)
    results = {task.one.name: json.loads(task.path.read_text(encoding="utf-8")) for task in tasks}
    show_difficulty(results)
    show(results, options.all_failures)
    if options.only:
        for name, result in results.items():
            print(f"\n{name}: {json.dumps(result['scenario'])}")
            for label, run in result["runs"].items():
                short = {key: value for key, value in run.items() if not isinstance(value, list) and key != "key"}
                values = {key: f"{v:.4g}" if isinstance(v, float) else v for key, v in short.items()}
                print(f"  {label}: " + ", ".join(f"{key} {value}" for key, value in values.items()))


def _work(one: BankScenario) -> float:
    """A rough measure of the time that a scenario takes."""
    clients, channels = one.settings["federation"]["num_clients"], one.settings["radio"]["num_channels"]
    return 10.0 + (clients * channels) ** 0.8


if __name__ == "__main__":
    main()
