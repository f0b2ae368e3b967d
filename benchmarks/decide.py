"""Speed and quality of decisions: both forms of the controller, and the solvers against the genetic algorithm.

Run: python -m benchmarks.decide [--quick] [--only-forms]
"""

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np

from qccf.control.bits_exact import ExactPairs
from qccf.control.channels_genetic import GeneticSettings, solve_genetic
from qccf.control.paper_form import PaperForm
from qccf.control.problem import RoundProblem, objective
from qccf.control.solve import solve_round
from qccf.core.contracts import Decision
from qccf.devices.cost import settle
from qccf.policies.qccf import Qccf
from support.problems import mixed_constants, random_problem, typical_problem, typical_world


def timed(decide: Callable[[], Decision], repeats: int) -> tuple[float, Decision]:
    """The median time of a decision, and the last decision."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        decision = decide()
        times.append(time.perf_counter() - started)
    return float(np.median(times)), decision


def gap_share(problem: RoundProblem, decision: Decision) -> float:
    """The certified gap as a fraction of the gain over the empty round."""
    assert decision.certificate is not None
    gain = problem.empty_objective - decision.certificate.objective
    return decision.certificate.gap / gain if gain > 0.0 else 0.0


FORMS = (
    ("paper", "fixed", ""),
    ("scale-free", "fixed", ""),
    ("scale-free", "adapted", ""),
    ("paper", "fixed", "devices differ"),
    ("scale-free", "fixed", "devices differ"),
    ("scale-free", "fixed", "half with steps"),
    ("scale-free", "adapted", "half with steps"),
    ("scale-free", "fixed", "half with steps, resting charged"),
    ("scale-free", "adapted", "half with steps, resting charged"),
)
REST_W = 2.0
"""Form, transmit power, and whether all clients have the paper's device."""


def forms(sizes: list[tuple[int, int, int]]) -> None:
    """Whole decisions of each form in successive rounds of one cell. The first round is left out."""
    print("| clients × channels | form | rounds | median time | longest | largest certified gap |")
    print("|---|---|---|---|---|---|")
    for clients, channels, rounds in sizes:
        for form, power, devices in FORMS:
            times, gaps = decided_rounds(clients, channels, form, rounds + 1, power, devices)
            median_ms, most_ms = float(np.median(times[1:])) * 1e3, max(times[1:]) * 1e3
            name = form + ", power adapted" * (power == "adapted") + f", {devices}" * bool(devices)
            print(
                f"| {clients:,} × {channels} | {name} | {rounds} | {median_ms:,.1f} ms | {most_ms:,.1f} ms | "
                f"{max(gaps[1:]):.1e} |",
                flush=True,
            )


def decided_rounds(
    clients: int, channels: int, form: str, rounds: int, power: str = "fixed", devices: str = ""
) -> tuple[list[float], list[float]]:
    """The time and the relative gap of each decision of a run; in the default form relative to energy and error."""
    scenario, world, statistics = typical_world(clients, channels)
    constants = scenario.constants()
    if devices:
        rest_w = REST_W if "resting" in devices else 0.0
        rng, steps = np.random.default_rng(0), "steps" in devices
        constants = mixed_constants(rng, clients, steps=steps, like=constants, idle_power_w=rest_w)
    policy = Qccf(constants, rounds=rounds, form=form, power=power)
    state = policy.init(statistics)
    times, gaps = [], []
    for index in range(rounds):
        observation = world.observe(index, statistics)
        seconds, decision = timed(lambda s=state, o=observation: policy.decide(s, o, np.random.default_rng(0)), 1)
        times.append(seconds)
        assert decision.certificate is not None
        gaps.append(
            gap_share(policy.form.problem(state, observation), decision)
            if isinstance(policy.form, PaperForm)
            else decision.certificate.gap / decision.certificate.objective
        )
        state = policy.update(state, decision, settle(decision, observation, policy.constants))
    return times, gaps


def speed(sizes: list[tuple[int, int, int]]) -> None:
    print("| clients × channels | assignment | certified gap | genetic 50 × 50 | ratio | genetic's gap | peak memory |")
    print("|---|---|---|---|---|---|---|")
    for clients, channels, repeats in sizes:
        problems = [typical_problem(clients, channels, seed) for seed in range(min(repeats, 5))]
        fast, slow, gaps, rough_gaps = [], [], [], []
        for seed, problem in enumerate(problems):
            seconds, decision = timed(lambda p=problem: solve_round(p), max(1, repeats // len(problems)))
            fast.append(seconds)
            gaps.append(gap_share(problem, decision))
            started = time.perf_counter()
            rough = solve_genetic(problem, ExactPairs(problem), np.random.default_rng(seed), GeneticSettings())
            slow.append(time.perf_counter() - started)
            assert decision.certificate is not None
            gain = problem.empty_objective - decision.certificate.objective
            rough_gaps.append((objective(problem, rough) - decision.certificate.objective) / gain)
        memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        a, g = float(np.median(fast)), float(np.median(slow))
        print(
            f"| {clients:,} × {channels} | {a * 1e3:,.1f} ms | {max(gaps):.1e} | {g * 1e3:,.0f} ms | "
            f"{g / a:.1f} × | {np.median(rough_gaps):.2g} | {memory_gib:.2f} GiB |",
            flush=True,
        )


def quality(count: int) -> None:
    """The gaps of the genetic and the assignment solver to the exhaustive optimum, over random rounds."""
    rng = np.random.default_rng(7)
    genetic_gaps, assignment_gaps, times = [], [], {"genetic": [], "assignment": [], "exhaustive": []}
    while len(genetic_gaps) < count:
        problem = random_problem(rng)
        values = {}
        for solver in times:
            started = time.perf_counter()
            certificate = solve_round(problem, solver=solver, rng=rng).certificate
            times[solver].append(time.perf_counter() - started)
            assert certificate is not None
            values[solver] = certificate.objective
        gain = problem.empty_objective - values["exhaustive"]
        if gain <= 1e-9 * abs(problem.empty_objective):
            continue  # the empty round is optimal
        genetic_gaps.append((values["genetic"] - values["exhaustive"]) / gain)
        assignment_gaps.append((values["assignment"] - values["exhaustive"]) / gain)
    median_ms = {solver: float(np.median(seconds)) * 1e3 for solver, seconds in times.items()}
    print(f"\n{count} random rounds with participants (2-10 clients, 1-12 channels); gap to the optimum as a fraction")
    print("of the gain over the empty round:\n")
    print("| solver | median gap | 90 % | worst | optimal | median time |")
    print("|---|---|---|---|---|---|")
    for solver, gaps in (("genetic", genetic_gaps), ("assignment", assignment_gaps)):
        optimal = np.mean(np.array(gaps) <= 1e-9)
        print(
            f"| {solver} | {np.median(gaps):.2g} | {np.quantile(gaps, 0.9):.2g} | {max(gaps):.2g} | {optimal:.1%} | "
            f"{median_ms[solver]:.1f} ms |"
        )
    print(f"| exhaustive | 0 | 0 | 0 | 100.0% | {median_ms['exhaustive']:.1f} ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, for CI")
    parser.add_argument("--only-forms", action="store_true", help="only the table of both forms")
    options = parser.parse_args()
    quick = options.quick
    solve_round(typical_problem(10, 10))  # load all imports
    forms([(10, 10, 5), (30, 10, 3)] if quick else [(10, 10, 100), (100, 50, 20), (1000, 100, 5), (10_000, 500, 2)])
    if options.only_forms:
        return
    print()
    speed(
        [(10, 10, 20), (30, 10, 5)]
        if quick
        else [(10, 10, 100), (10, 5, 100), (100, 50, 20), (1000, 100, 5), (10_000, 500, 1)]
    )
    quality(10 if quick else 200)


if __name__ == "__main__":
    main()
