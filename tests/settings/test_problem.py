"""`qccf decide`: the format, and a sentence for everything that breaks it."""

import copy
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from qccf.cli.main import main
from qccf.control.problem import RoundProblem
from qccf.core.errors import ProblemError
from qccf.devices.cost import settle
from qccf.policies.qccf import Qccf
from qccf.settings.loading import load_scenario
from qccf.settings.problem import CONSTANTS, POWER_CONSTANTS, DefaultProblem, decide_problem, parse_problem
from support.problems import random_problem, typical_problem
from tests.helpers import brute

OUTPUT = {
    "channels", "num_bits", "frequencies_hz", "objective", "energy_j", "lower_bound", "certified_gap", "solver",
    "wall_time_s",
}  # fmt: skip


def as_json(problem: RoundProblem) -> dict:
    s = problem.observation.statistics
    return {
        "rates_bps": problem.rates_bps.tolist(),
        "dataset_sizes": s.dataset_sizes.tolist(),
        "gradient_norms_sq": s.gradient_norms_sq.tolist(),
        "gradient_variances": s.gradient_variances.tolist(),
        "weight_ranges": s.weight_ranges.tolist(),
        "participation_queue": problem.participation_queue,
        "quantization_queue": problem.quantization_queue,
        "constants": {name: value for name, value in asdict(problem.constants).items() if name in CONSTANTS},
    }


@pytest.fixture
def tree() -> dict:
    return as_json(typical_problem(4, 3))


def test_reading_is_the_inverse_of_writing() -> None:
    problem = random_problem(np.random.default_rng(5))
    back = parse_problem(json.loads(json.dumps(as_json(problem))))
    assert back.constants == problem.constants
    np.testing.assert_array_equal(back.rates_bps, problem.rates_bps)
    assert as_json(back) == as_json(problem)


def falling(num_clients: int) -> list[list[float]]:
    return [[float(client + 1) / q for q in range(1, 33)] for client in range(num_clients)]


def test_a_table_of_errors_may_be_given(tree: dict, tmp_path: Path, capsys) -> None:
    assert parse_problem(tree).observation.statistics.upload_errors is None
    assert parse_problem({**tree, "upload_errors": None}).observation.statistics.upload_errors is None
    given = {**tree, "upload_errors": falling(4)}
    np.testing.assert_array_equal(parse_problem(given).observation.statistics.upload_errors, falling(4))
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(given))
    assert main(["decide", str(path), "--json"]) == 0
    assert "ignored: upload_errors" in capsys.readouterr().err, "the paper's form knows only the bound"


@pytest.mark.parametrize("solver", ["assignment", "genetic", "exhaustive"])
@pytest.mark.parametrize("inner", ["exact", "closed-form", "printed"])
def test_decide_prints_the_decision(tree: dict, tmp_path: Path, capsys, solver: str, inner: str) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(tree))
    assert main(["decide", str(path), "--solver", solver, "--inner", inner, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == OUTPUT
    problem = parse_problem(tree)
    assert answer["objective"] == pytest.approx(brute.objective(problem, answer["channels"], answer["num_bits"]))
    spent = sum(
        brute.energy(problem, i, c, q, f)
        for i, (c, q, f) in enumerate(
            zip(answer["channels"], answer["num_bits"], answer["frequencies_hz"], strict=True)
        )
        if c >= 0
    )
    assert answer["energy_j"] == pytest.approx(spent)
    assert answer["certified_gap"] == pytest.approx(answer["objective"] - answer["lower_bound"])
    assert answer["solver"] == f"{solver}/{inner}"
    assert answer["wall_time_s"] > 0.0


def test_decide_for_people(tree: dict, tmp_path: Path, capsys) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(tree))
    assert main(["decide", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "sits out" in shown
    assert "mJ" in shown


def broken(tree: dict, path: list, value) -> dict:
    changed = copy.deepcopy(tree)
    node = changed
    for key in path[:-1]:
        node = node[key]
    if value is KeyError:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return changed


BREAKAGES = [
    (["rates_bps", 1], [1e8], "ragged: client 1 has 1 channels and client 0 has 3"),
    (["rates_bps", 0, 0], -1.0, "rates_bps[0][0] = -1 is out of range"),
    (["rates_bps", 0, 0], float("nan"), "rates_bps[0][0] = nan is not finite"),
    (["rates_bps", 2, 1], "fast", "rates_bps[2][1] = 'fast' is not a number"),
    (["rates_bps"], [], "rates_bps is not a list"),
    (["rates_bps"], [[], [], [], []], "rates_bps[0] is empty"),
    (["rates_bps"], 7, "rates_bps is not a list"),
    (["dataset_sizes", 3], -5, "dataset_sizes[3] = -5 is out of range: it must be from 0.001 to 1e+12"),
    (["dataset_sizes", 3], 0, "dataset_sizes[3] = 0 is out of range"),
    (["dataset_sizes"], [1, 2], "dataset_sizes has 2 entries, but rates_bps has 4 clients"),
    (["dataset_sizes"], {"a": 1}, "dataset_sizes = {'a': 1} is not a list"),
    (["gradient_norms_sq", 0], -1e-9, "gradient_norms_sq[0] = -1e-09 is out of range"),
    (["gradient_variances", 0], True, "gradient_variances[0] = True is not a number"),
    (["weight_ranges", 0], float("inf"), "weight_ranges[0] = inf is not finite"),
    (["weight_ranges", 0], 10**400, "is not finite"),
    (["weight_ranges"], KeyError, "lacks weight_ranges"),
    (["participation_queue"], None, "participation_queue = None is not a number"),
    (["quantization_queue"], KeyError, "lacks quantization_queue"),
    (["constants"], KeyError, "lacks constants"),
    (["constants"], 3, "constants is not an object"),
    (["constants", "deadline_s"], KeyError, "constants lacks deadline_s"),
    (["constants", "deadline_s"], 0, "constants.deadline_s = 0 is out of range: it must be from 1e-09 to 1e+09"),
    (["constants", "data_budget"], -1, "constants.data_budget = -1 is out of range: it must be from 0 to 1e+12"),
    (["constants", "local_updates"], 2.5, "constants.local_updates = 2.5 is not a whole number"),
    (["constants", "frequency_min_hz"], 2e9, "frequency_min_hz = 2e+09 is above frequency_max_hz = 1e+09"),
    (["constants", "local_updates"], 1, "constants.local_updates = 1 is below local_epochs = 2"),
    (["participation_queue"], 1e308, "participation_queue = 1e+308 is out of range"),
    (["constants", "frequency_max_hz"], 1e300, "constants.frequency_max_hz = 1e+300 is out of range"),
    (["constants", "smoothness"], 1.2, "constants.smoothness = 1.2 makes 2η²τ²L²"),
    (["upload_errors"], 3, "upload_errors is not a list with one list of errors for each client"),
    (["upload_errors"], [1.0] * 4, "upload_errors is not a list with one list of errors for each client"),
    (["upload_errors"], [[1.0] * 32] * 3, "upload_errors has 3 entries, but rates_bps has 4 clients"),
    (["upload_errors"], [[1.0] * 31] * 4, "upload_errors[0] has 31 entries: give one error for each of 1 to 32 bits"),
    (["upload_errors"], [[1.0] * 32] * 3 + [[-1.0] * 32], "upload_errors[3][0] = -1 is out of range"),
    (["upload_errors"], [[1e40] * 32] * 4, "upload_errors[0][0] = 1e+40 is out of range: it must be from 0 to 1e+31"),
    (["upload_errors"], [[float("nan")] * 32] * 4, "upload_errors[0][0] = nan is not finite"),
    (["upload_errors"], [[1.0] * 31 + [2.0]] * 4, "upload_errors[0][31] = 2 is above the error 1 with one bit less"),
]


@pytest.mark.parametrize(("path", "value", "words"), BREAKAGES)
def test_every_broken_rule_gets_one_sentence_and_status_2(
    tree: dict, tmp_path: Path, capsys, path: list, value, words: str
) -> None:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(broken(tree, path, value)))
    assert main(["decide", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1
    with pytest.raises(ProblemError):
        parse_problem(broken(tree, path, value))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "a problem is a JSON object"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_files_that_are_no_problem(tmp_path: Path, capsys, content: bytes, words: str) -> None:
    file = tmp_path / "problem.json"
    file.write_bytes(content)
    assert main(["decide", str(file)]) == 2
    assert words in capsys.readouterr().err


EXTREMES = [
    (key, index, value)
    for key, index, limits in (
        ("rates_bps", 0, (0.0, 1e15)),
        ("dataset_sizes", 0, (1e-3, 1e12)),
        ("gradient_norms_sq", 0, (0.0, 1e12)),
        ("gradient_variances", 0, (0.0, 1e12)),
        ("weight_ranges", 0, (0.0, 1e9)),
        ("participation_queue", None, (-1e12, 1e12)),
        ("quantization_queue", None, (-1e12, 1e12)),
        ("num_parameters", "c", (1, 10**13)),
        ("deadline_s", "c", (1e-9, 1e9)),
        ("cycles_per_sample", "c", (1e-3, 1e18)),
        ("energy_coefficient", "c", (1e-40, 1.0)),
        ("transmit_power_w", "c", (1e-12, 1e9)),
        ("frequency_min_hz", "c", (1.0, 1e9)),
        ("frequency_max_hz", "c", (2e8, 1e15)),
        ("energy_weight", "c", (1e-12, 1e15)),
        ("data_budget", "c", (0.0, 1e12)),
        ("quantization_budget", "c", (0.0, 1e12)),
    )
    for value in limits
]


@pytest.mark.parametrize(("key", "index", "value"), EXTREMES)
@pytest.mark.parametrize("inner", ["exact", "closed-form", "printed"])
def test_at_the_limits_the_answer_is_still_finite_and_silent(
    tree: dict, capsys, tmp_path: Path, key, index, value, inner
) -> None:
    """Warnings are errors in these tests, so an overflow anywhere would show."""
    path = ["constants", key] if index == "c" else [key, 0] if index == 0 else [key]
    if key == "rates_bps":
        value = [value] * 3
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(broken(tree, path, value)))
    assert main(["decide", str(file), "--json", "--inner", inner]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} in the answer"))
    assert answer["lower_bound"] <= answer["objective"]


def test_missing_file(capsys) -> None:
    assert main(["decide", "nowhere.json"]) == 2
    assert "nowhere.json: cannot be read: No such file" in capsys.readouterr().err


def test_unknown_keys_are_named_and_ignored(tree: dict, tmp_path: Path, capsys) -> None:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps({**tree, "comment": "mine", "constants": {**tree["constants"], "colour": 1}}))
    assert main(["decide", str(file), "--json"]) == 0
    captured = capsys.readouterr()
    assert "ignored: comment, constants.colour" in captured.err
    assert json.loads(captured.out).keys() == OUTPUT


def test_too_many_clients_for_exhaustive(tmp_path: Path, capsys) -> None:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(as_json(typical_problem(13, 3))))
    assert main(["decide", str(file), "--solver", "exhaustive"]) == 2
    assert "at most 12 clients" in capsys.readouterr().err


def test_standard_input_and_a_real_process(tree: dict) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qccf", "decide", "-", "--json"], input=json.dumps(tree), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() == OUTPUT


PAPERS_KEYS = ("participation_queue", "quantization_queue", "gradient_variances")
PAPERS_CONSTANTS = ("smoothness", "energy_weight", "data_budget", "quantization_budget")


@pytest.fixture
def default_tree(tree: dict) -> dict:
    """The same round in the default form."""
    constants = {name: value for name, value in tree["constants"].items() if name not in PAPERS_CONSTANTS}
    return {name: value for name, value in tree.items() if name not in PAPERS_KEYS} | {"constants": constants}


def test_a_problem_without_queues_is_decided_in_the_default_form(default_tree: dict, tmp_path: Path, capsys) -> None:
    """As by the policy itself, round after round with the state that the answer holds."""
    scenario = load_scenario("femnist", ["federation.num_clients=4", "radio.num_channels=3"])
    policy = Qccf(scenario.constants(), rounds=5, slack=3.0)
    problem = parse_problem({**default_tree, "slack": 3.0})
    assert isinstance(problem, DefaultProblem)
    state = policy.init(problem.observation.statistics)
    path, given = tmp_path / "round.json", {**default_tree, "slack": 3.0}
    for _ in range(4):
        path.write_text(json.dumps(given))
        assert main(["decide", str(path), "--json"]) == 0
        printed = capsys.readouterr()
        assert printed.err == "", "every key is used"
        answer = json.loads(printed.out)
        decision = policy.decide(state, problem.observation, np.random.default_rng(0))
        outcome = settle(decision, problem.observation, problem.constants)
        assert answer["channels"] == decision.channels.tolist()
        assert answer["num_bits"] == decision.num_bits.tolist()
        assert answer["energy_j"] == pytest.approx(outcome.energy_j.sum())
        state = policy.update(state, decision, outcome)
        assert answer["state"] == {"debts": state["debts"], "error_price": state["error_price"]}
        given |= answer["state"]
    assert min(state["debts"]) < 0.0 < max(state["debts"]), "three of four had a turn in each round"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"debts": [0.0, 0.0]}, "debts has 2 entries, but rates_bps has 4 clients"),
        ({"debts": [0.0, 0.0, 0.0, 99.0]}, "debts[3] = 99 is out of range: it must be from -12 to 12"),
        ({"slack": 1.0}, "slack = 1 is out of range"),
        ({"share": 2.0}, "share = 2 is out of range"),
        ({"error_price": 0.0}, "error_price = 0 is out of range"),
        ({"gradient_norms_sq": None}, "gradient_norms_sq = None is not a list"),
        ({"participation_queue": 1.0}, "lacks quantization_queue"),
        ({"transmit_power_min_w": 0.01}, "transmit_power_min_w adapts the power, and that needs constants.bandwidth"),
        ({"transmit_power_min_w": 0.3, "bandwidth_hz": 1e7}, "transmit_power_min_w = 0.3 is above transmit_power_w"),
        ({"transmit_power_min_w": 0.1, "bandwidth_hz": 1e3}, "needs more than 100 bits per second and hertz"),
        ({"transmit_power_min_w": 0.0}, "constants.transmit_power_min_w = 0 is out of range"),
    ],
)
def test_mistakes_in_the_default_form_get_a_sentence(default_tree: dict, change: dict, words: str) -> None:
    powers = {name: value for name, value in change.items() if name in POWER_CONSTANTS}
    if powers:
        change = {"constants": {**default_tree["constants"], **powers}}
    with pytest.raises(ProblemError) as error:
        parse_problem({**default_tree, **change})
    if "lacks" in words:
        assert "lacks gradient_variances, quantization_queue" in str(error.value)
    else:
        assert words in str(error.value)


def test_solvers_of_the_papers_form_are_refused_without_queues(default_tree: dict, tmp_path: Path, capsys) -> None:
    path = tmp_path / "round.json"
    path.write_text(json.dumps(default_tree))
    assert main(["decide", str(path), "--solver", "genetic"]) == 2
    assert "this problem has no queues" in capsys.readouterr().err


def test_transmit_power_is_a_decision_where_its_limits_are_given(default_tree: dict, tmp_path: Path, capsys) -> None:
    path = tmp_path / "round.json"
    path.write_text(json.dumps(default_tree))
    assert main(["decide", str(path), "--json"]) == 0
    fixed = json.loads(capsys.readouterr().out)
    assert "powers_w" not in fixed
    free = {**default_tree["constants"], "bandwidth_hz": 1e7, "transmit_power_min_w": 0.01, "circuit_power_w": 0.0}
    path.write_text(json.dumps({**default_tree, "constants": free}))
    assert main(["decide", str(path), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "", "every key is used"
    answer = json.loads(printed.out)
    on = np.array(answer["channels"]) >= 0
    powers_w = np.array(answer["powers_w"])
    assert ((powers_w[on] >= 0.01) & (powers_w[on] <= free["transmit_power_w"])).all()
    assert (powers_w[~on] == 0.0).all()
    assert answer["energy_j"] <= fixed["energy_j"]
    assert main(["decide", str(path)]) == 0
    assert "power (mW)" in capsys.readouterr().out


def test_constants_may_be_listed_for_each_client(tree: dict, tmp_path: Path, capsys) -> None:
    """A list of equal numbers decides as the number; other numbers are those of each client, as brute force says."""
    count = len(tree["rates_bps"])
    plain = decide_problem(parse_problem(tree))
    equal = tree | {
        "constants": tree["constants"] | {"energy_coefficient": [tree["constants"]["energy_coefficient"]] * count}
    }
    same = decide_problem(parse_problem(equal))
    np.testing.assert_array_equal(plain.channels, same.channels)
    np.testing.assert_array_equal(plain.num_bits, same.num_bits)
    rng = np.random.default_rng(4)
    spread = {
        name: (tree["constants"][name] * rng.uniform(0.8, 1.25, count)).tolist()
        for name in ("cycles_per_sample", "energy_coefficient", "transmit_power_w")
    }
    own = tree | {"constants": tree["constants"] | spread}
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(own))
    assert main(["decide", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    problem = parse_problem(own)
    assert answer["objective"] == pytest.approx(brute.objective(problem, answer["channels"], answer["num_bits"]))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1000.0], "constants.cycles_per_sample has 1 entries"),
        ([], "constants.cycles_per_sample"),
        ([1000.0, "x", 1000.0, 1000.0], r"constants.cycles_per_sample\[1\] = 'x' is not a number"),
        ([1000.0, True, 1000.0, 1000.0], r"constants.cycles_per_sample\[1\] = 'True' is not a number"),
        ([1000.0, 1e30, 1000.0, 1000.0], r"constants.cycles_per_sample\[1\] = 1e\+30 is out of range"),
        ([1000.0, float("nan"), 1000.0, 1000.0], r"constants.cycles_per_sample\[1\] = nan is out of range"),
        ([[1.0]] * 4, "constants.cycles_per_sample"),
    ],
)
def test_wrong_lists_of_constants_are_refused(tree: dict, values: list, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        parse_problem(tree | {"constants": tree["constants"] | {"cycles_per_sample": values}})


def test_listed_limits_must_be_in_order(tree: dict) -> None:
    lowest = {"frequency_min_hz": [2e8, 2e8, 2e9, 2e8]}
    with pytest.raises(ProblemError, match=r"frequency_min_hz = 2e\+09 is above frequency_max_hz = 1e\+09: swap them"):
        parse_problem(tree | {"constants": tree["constants"] | lowest})
