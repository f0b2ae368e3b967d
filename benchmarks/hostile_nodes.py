"""One hostile or faulty node in a real federation on loopback: what it can do to the others.

A SuperLink with TLS and five SuperNodes with keys, each message a process of its own. The clients move a small model
towards targets of their own. Each case is one run; the honest run comes first. A case is survived if the run finishes,
the honest clients take part as often as in the honest run but for one round, and the model is at most two steps away
from the honest run's model (six where the client may count as four). A step is what that run moved in its last round.

Run: python -m benchmarks.hostile_nodes [--only update,fail] [--rounds 5]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.rounds.run_folder import read_run
from qccf.runtimes.flower.loopback import Loopback

APP = Path(__file__).parents[1] / "tests" / "helpers" / "fab"
NODES, LIAR = 5, 4
SETTINGS = "radio.bandwidth_hz=1e6 device.cycles_per_sample=1e4"
MOST_S = 900.0
"""Limit of every wait."""
POLL_S = "1.0"
"""Seconds between two questions of a SuperNode's executor for work."""


class Case(NamedTuple):
    """What is tried, and the words of the server's log that must name it."""

    title: str
    lies: str = ""
    warning: str = ""
    settings: str = ""
    act: Callable[[Loopback, Path, Callable[[], Any]], None] | None = None
    most_steps: float = 2.0
    """How far the model may be from the honest run's."""


def second_node(federation: Loopback, _: Path, __: Callable[[], Any]) -> None:
    """Another registered node that states the liar's number."""
    federation.register(NODES)
    federation.start_node(NODES, **{"partition-id": LIAR})


def killed_link(federation: Loopback, out: Path, again: Callable[[], Any]) -> None:
    """The SuperLink is killed after round 2 and started again at once, while its server still holds the folder."""
    wait_for(lambda: (out / "checkpoints" / "round-000002.npz").exists())
    federation.processes.pop("link").kill()  # alone: the server that it had started is an orphan now
    federation.stop("run", hard=True)
    federation.start_link()
    again()


CASES = {
    "honest": Case("nobody"),
    "update": Case("an update × 100, once", f"{LIAR}:1:update=100", "was too long and is clipped"),
    "diverge": Case("an update × 10⁶, once", f"{LIAR}:1:update=1e6", "was too long and is clipped"),
    "always": Case("an update × 100, in every round", f"{LIAR}:*:update=100", "was too long and is clipped"),
    "size": Case(  # it counts as four clients of five plus three, as a client with so much data would
        "1,600 samples instead of 140, from the start",
        f"{LIAR}:*:num-examples=1600",
        "states 1600 samples",
        most_steps=6.0,
    ),
    "sizes": Case("10⁹ samples, in round 2", f"{LIAR}:1:num-examples=1e9", "reported 1000000000 samples"),
    "error": Case("error-scale = 10³⁰, once", f"{LIAR}:1:error-scale=1e30", "reported error_scale = 1e+30"),
    "error-paper": Case(
        "the same in the paper's form",
        f"{LIAR}:1:error-scale=1e30",
        "reported error_scale = 1e+30",
        "control.form=paper codec.name=model",
    ),
    "range": Case("weight-range = 10³⁰, once", f"{LIAR}:1:weight-range=1e30", "reported weight_range = 1e+30"),
    "fail": Case("a client that fails in the probe", f"{LIAR}:probe:fail=1", "this client fails on request"),
    "number": Case("a second node with a client's number", act=second_node, warning="which node"),
    "link": Case("the SuperLink is killed and restarted at once", act=killed_link, warning="resuming after round"),
}


class Result(NamedTuple):
    """Of one run: arrived uploads [round, client], the model, its change in the last round, and the server's log."""

    arrived: FloatArray
    weights: FloatArray
    last_step: float
    log: str
    seconds: float


def wait_for(reached: Callable[[], object]) -> None:
    end = time.monotonic() + MOST_S
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"{MOST_S:g} s are over")
        time.sleep(0.2)


def weights_after(out: Path, number: int) -> FloatArray:
    with np.load(out / "checkpoints" / f"round-{number:06d}.npz") as kept:
        return np.asarray(kept["weights"], dtype=np.float64)


def run_case(federation: Loopback, case: Case, out: Path, rounds: int) -> Result:
    """The federation is the same for all cases, so each leaves it as it was."""
    began = time.monotonic()
    settings = f"{SETTINGS} {case.settings}".strip()
    config = {"rounds": rounds, "num-clients": NODES, "out": out, "settings": settings, "timeout": 300.0}

    def start() -> None:
        federation.run({**config, "lies": case.lies})

    start()
    if case.act is not None:
        case.act(federation, out, start)
    wait_for(lambda: federation.processes["run"].poll() is not None)
    log = federation.log_text("run")
    if (extra := f"node{NODES}") in federation.processes:
        federation.stop(extra)
        federation.unregister(NODES)
    if not (out / "summary.json").exists():
        raise RuntimeError(f"the run did not finish:\n{log[-3000:]}")
    table = read_run(out).client_columns
    arrived = np.asarray(table["arrived"], dtype=float).reshape(-1, NODES)
    before, last = weights_after(out, rounds - 1), weights_after(out, rounds)
    return Result(arrived, last, float(np.linalg.norm(last - before)), log, time.monotonic() - began)


def judged(case: Case, one: Result, honest: Result) -> tuple[str, str]:
    """A row of the table, and what is lost."""
    others = [client for client in range(NODES) if client != LIAR]
    lost = honest.arrived[:, others].sum(axis=0) - one.arrived[:, others].sum(axis=0)
    away = float(np.linalg.norm(one.weights - honest.weights)) / honest.last_step
    faults = []
    if lost.max() > 1.0:
        faults.append(f"an honest client lost {lost.max():.0f} rounds")
    if not away <= case.most_steps:
        faults.append("the model is too far away")
    if case.warning not in one.log:
        faults.append(f"the log does not say {case.warning!r}")
    row = (
        f"| {case.title} | {one.arrived[:, others].sum():.0f} of {honest.arrived[:, others].sum():.0f} | {away:.2f} | "
        f"{one.seconds:.0f} | {'lost: ' + '; '.join(faults) if faults else 'survived'} |"
    )
    return row, "; ".join(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="A,B,…", help=f"default all: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chosen = ["honest", *(options.only.split(",") if options.only else list(CASES)[1:])]
    if unknown := [name for name in chosen if name not in CASES]:
        parser.error(f"--only {unknown[0]} is not one of {', '.join(CASES)}")
    os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = POLL_S
    folder, lost, references = Path(tempfile.mkdtemp()), 0, dict[str, Result]()
    print("| tried | honest uploads | model, in steps | s | outcome |\n|---|---|---|---|---|", flush=True)
    try:
        with Loopback(folder / "federation", NODES, app=APP) as federation:
            for name in chosen:
                case = CASES[name]
                if case.settings not in references:  # the honest run with the same settings
                    quiet = Case("nobody", settings=case.settings)
                    references[case.settings] = run_case(federation, quiet, folder / f"honest-{name}", options.rounds)
                honest = references[case.settings]
                one = honest if name == "honest" else run_case(federation, case, folder / name, options.rounds)
                row, fault = judged(case, one, honest)
                lost += bool(fault)
                print(row, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(chosen) - 1} attempts, {lost} lost")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
