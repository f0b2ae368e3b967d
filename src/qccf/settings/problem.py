"""One round's problem as JSON: what `qccf decide` reads and writes. `docs/decide.md` describes both.

A problem with queues is the paper's P2. A problem without them is decided in the default form, and the answer holds the
state that the next round's problem takes.
"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from qccf.control import bound
from qccf.control.bound import error_and_budget
from qccf.control.problem import RoundProblem
from qccf.control.scale_free_form import MOST_DEBT
from qccf.control.solve import Inner, Solver, solve_round
from qccf.core.contracts import (
    MAX_NUM_BITS,
    Constants,
    Decision,
    FloatArray,
    Observation,
    PolicyState,
    Statistics,
)
from qccf.core.errors import ConfigError, ProblemError
from qccf.devices.cost import settle
from qccf.policies.qccf import Qccf
from qccf.settings.problem_devices import first_above, with_lists, without_lists

# Limits: wide enough for any radio, any model and any unit, narrow enough that no formula overflows.
RATES = (0.0, 1e15)
QUEUES = (-1e12, 1e12)
PER_CLIENT = {
    "dataset_sizes": (1e-3, 1e12),
    "gradient_norms_sq": (0.0, 1e12),
    "gradient_variances": (0.0, 1e12),
    "weight_ranges": (0.0, 1e9),
}
ERRORS = (0.0, 1e31)
CONSTANTS = {
    "num_parameters": (1, 1e13),
    "deadline_s": (1e-9, 1e9),
    "cycles_per_sample": (1e-3, 1e18),
    "energy_coefficient": (1e-40, 1.0),
    "transmit_power_w": (1e-12, 1e9),
    "frequency_min_hz": (1.0, 1e15),
    "frequency_max_hz": (1.0, 1e15),
    "local_updates": (1, 1e6),
    "local_epochs": (1, 1e6),
    "learning_rate": (1e-12, 1e6),
    "smoothness": (1e-12, 1e9),
    "energy_weight": (1e-12, 1e15),
    "data_budget": (0.0, 1e12),
    "quantization_budget": (0.0, 1e12),
}
POWER_CONSTANTS = {"bandwidth_hz": (1e-3, 1e15), "transmit_power_min_w": (1e-12, 1e9), "circuit_power_w": (0.0, 1e9)}
"""Optional constants of the default form. With the first two, transmit power is a decision."""

MOST_EFFICIENCY = 100.0
"""Rates of more bits per second and hertz are not those of a channel of this bandwidth."""

PAPERS_CONSTANTS = {"smoothness": 1e-12, "energy_weight": 1.0, "data_budget": 0.0, "quantization_budget": 0.0}
"""Constants that only the paper's form uses, with values that stand for them in the default form."""

KNOBS = {"slack": (1.0 + 1e-9, 1e3), "share": (1e-9, 1.0), "energy_weight": (0.02, 50.0)}
DEBTS = (-MOST_DEBT, MOST_DEBT)
PRICES = (1e-300, 1e300)
WHOLE = ("num_parameters", "local_updates", "local_epochs")
LIMITS = {
    "rates_bps": RATES,
    "participation_queue": QUEUES,
    "quantization_queue": QUEUES,
    "upload_errors": ERRORS,
    "debts": DEBTS,
    "error_price": PRICES,
    **KNOBS,
    **PER_CLIENT,
    **{f"constants.{name}": limits for name, limits in (CONSTANTS | POWER_CONSTANTS).items()},
}


class _Model(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


def _number(limits: tuple[float, float]) -> Any:
    return Annotated[float, Field(ge=limits[0], le=limits[1])]


def _model(name: str, **kinds: Any) -> type[BaseModel]:
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in kinds.items()}
    return create_model(name, __base__=_Model, **fields)


_ProblemConstants = _model("_ProblemConstants", **{name: _number(limits) for name, limits in CONSTANTS.items()})
_Problem = _model(
    "_Problem",
    rates_bps=list[list[_number(RATES)]],  # type: ignore[misc]
    **{name: list[_number(limits)] for name, limits in PER_CLIENT.items()},  # type: ignore[misc]
    participation_queue=_number(QUEUES),
    quantization_queue=_number(QUEUES),
    constants=_ProblemConstants,
)
NEEDED = tuple(_Problem.model_fields)


class PapersProblemFile(_Problem):  # type: ignore[misc, valid-type]
    upload_errors: list[list[_number(ERRORS)]] | None = None  # type: ignore[valid-type]


_PlainConstants = _model(
    "_PlainConstants",
    **{name: _number(limits) for name, limits in CONSTANTS.items() if name not in PAPERS_CONSTANTS},
)


class _DefaultConstants(_PlainConstants):  # type: ignore[misc, valid-type]
    bandwidth_hz: _number(POWER_CONSTANTS["bandwidth_hz"]) | None = None  # type: ignore[valid-type]
    transmit_power_min_w: _number(POWER_CONSTANTS["transmit_power_min_w"]) | None = None  # type: ignore[valid-type]
    circuit_power_w: _number(POWER_CONSTANTS["circuit_power_w"]) | None = None  # type: ignore[valid-type]


_PlainProblem = _model(
    "_PlainProblem",
    rates_bps=list[list[_number(RATES)]],  # type: ignore[misc]
    **{
        name: list[_number(limits)]  # type: ignore[misc]
        for name, limits in PER_CLIENT.items()
        if name != "gradient_variances"
    },
    constants=_DefaultConstants,
)


class DefaultProblemFile(_PlainProblem):  # type: ignore[misc, valid-type]
    gradient_variances: list[_number(PER_CLIENT["gradient_variances"])] | None = None  # type: ignore[valid-type]
    upload_errors: list[list[_number(ERRORS)]] | None = None  # type: ignore[valid-type]
    slack: _number(KNOBS["slack"]) | None = None  # type: ignore[valid-type]
    share: _number(KNOBS["share"]) | None = None  # type: ignore[valid-type]
    energy_weight: _number(KNOBS["energy_weight"]) | None = None  # type: ignore[valid-type]
    debts: list[_number(DEBTS)] | None = None  # type: ignore[valid-type]
    error_price: _number(PRICES) | None = None  # type: ignore[valid-type]


@dataclass(frozen=True)
class DefaultProblem:
    """A round in the default form: what is observed, the policy with its knobs, and its state."""

    observation: Observation
    constants: Constants
    policy: Qccf
    state: PolicyState

    def decide(self) -> Decision:
        return self.policy.decide(self.state, self.observation, np.random.default_rng(0))


def read_problem(path: str) -> tuple[RoundProblem | DefaultProblem, list[str]]:
    """The problem in a file, or on standard input for "-", and the keys in it that are not used."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ProblemError(f"{path}: cannot be read: {reason}.") from None
    tree = parse_json(text, path)
    return parse_problem(tree), unknown_keys(tree)


def parse_json(text: str | bytes, name: str) -> Any:
    """The value that a JSON text holds; `name` says in an error which text it was."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ProblemError(f"{name}: is not valid JSON: {reason}.") from None


def parse_problem(tree: Any) -> RoundProblem | DefaultProblem:
    """Check every rule of the format and build the problem."""
    papers = _is_papers(tree)
    tree, lists = without_lists(tree)
    try:
        problem: Any = (PapersProblemFile if papers else DefaultProblemFile).model_validate(tree)
    except ValidationError as error:
        raise ProblemError(_sentence(error, papers)) from None
    _check_shapes(problem)
    unused = {} if papers else PAPERS_CONSTANTS
    values: dict[str, Any] = unused | {
        name: getattr(problem.constants, name) for name in CONSTANTS if name not in unused
    }
    for name in WHOLE:
        if values[name] != int(values[name]):
            raise ProblemError(f"constants.{name} = {values[name]:g} is not a whole number.")
        values[name] = int(values[name])
    chosen = {} if papers else {name: getattr(problem.constants, name) for name in POWER_CONSTANTS}
    constants = Constants(**values, **{name: value for name, value in chosen.items() if value is not None})
    used = {name: values for name, values in lists.items() if not papers or name in CONSTANTS}
    constants = with_lists(constants, used, len(problem.rates_bps), LIMITS)
    _check_constants(constants, papers)
    adapted = bool(np.any(constants.transmit_power_min_w))
    if adapted:
        _check_power(constants, max(max(row) for row in problem.rates_bps))
    count = len(problem.rates_bps)
    given = {name: getattr(problem, name) for name in PER_CLIENT}
    statistics = Statistics(
        **{name: np.zeros(count) if values is None else np.array(values, float) for name, values in given.items()}
    )
    if problem.upload_errors is not None:
        statistics = replace(statistics, upload_errors=_error_table(problem.upload_errors, statistics.num_clients))
    observation = Observation(np.array(problem.rates_bps, dtype=float), statistics)
    if papers:
        return RoundProblem(observation, constants, problem.participation_queue, problem.quantization_queue)
    knobs = {name: getattr(problem, name) for name in KNOBS if getattr(problem, name) is not None}
    policy = Qccf(constants, rounds=1, power="adapted" if adapted else "fixed", **knobs)
    state = policy.init(statistics)
    state |= {name: value for name in ("debts", "error_price") if (value := getattr(problem, name)) is not None}
    return DefaultProblem(observation, constants, policy, state)


def _is_papers(tree: Any) -> bool:
    return isinstance(tree, dict) and bool({"participation_queue", "quantization_queue"} & tree.keys())


def decide_problem(
    problem: RoundProblem | DefaultProblem, *, solver: Solver = "assignment", inner: Inner = "exact", seed: int = 0
) -> Decision:
    """The decision. Solvers can be chosen for the paper's form only; the seed is for the genetic solver."""
    if seed < 0:
        raise ProblemError(f"seed {seed} is negative: give 0 or above.")
    if isinstance(problem, RoundProblem):
        return solve_round(problem, solver=solver, inner=inner, rng=np.random.default_rng(seed))
    if (solver, inner) != ("assignment", "exact"):
        raise ProblemError(
            "solver and inner are for the paper's form, and this problem has no queues: leave them out, or add "
            "participation_queue and quantization_queue."
        )
    return problem.decide()


def decision_to_json(problem: RoundProblem | DefaultProblem, decision: Decision) -> dict[str, Any]:
    """The decision and its certificate as plain values.

    In the default form also the expected error of the aggregate, its budget, and the state after the round if every
    upload arrives.
    """
    assert decision.certificate is not None
    outcome = settle(decision, problem.observation, problem.constants)
    more: dict[str, Any] = {}
    if isinstance(problem, DefaultProblem):
        assert decision.targets is not None
        error, budget = None, None
        if outcome.arrived.any():
            sizes = problem.observation.statistics.dataset_sizes
            error, budget = error_and_budget(decision.targets, outcome.arrived, sizes)
        after = problem.policy.update(problem.state, decision, outcome)
        state = {name: after[name] for name in ("debts", "error_price") if name in after}
        more = {"aggregate_error": error, "error_budget": budget, "state": state}
    return {
        "channels": decision.channels.tolist(),
        "num_bits": decision.num_bits.tolist(),
        "frequencies_hz": decision.frequencies_hz.tolist(),
        **({} if decision.powers_w is None else {"powers_w": decision.powers_w.tolist()}),
        "objective": decision.certificate.objective,
        "energy_j": float(outcome.energy_j.sum()),
        "lower_bound": decision.certificate.lower_bound,
        "certified_gap": decision.certificate.gap,
        "solver": decision.certificate.solver,
        "wall_time_s": decision.certificate.wall_time_s,
        **more,
    }


def unknown_keys(tree: dict[str, Any]) -> list[str]:
    """The keys of a valid problem that its form does not use."""
    papers = _is_papers(tree)
    used = CONSTANTS.keys() if papers else (CONSTANTS | POWER_CONSTANTS).keys() - PAPERS_CONSTANTS.keys()
    fields = set((PapersProblemFile if papers else DefaultProblemFile).model_fields)
    unused = {"upload_errors"} if papers else {"gradient_variances"}  # checked, but no part of this form
    inner = sorted(f"constants.{key}" for key in tree["constants"].keys() - used)
    return sorted(tree.keys() - (fields - unused)) + inner


def _check_shapes(problem: Any) -> None:
    if not problem.rates_bps:
        raise ProblemError("rates_bps is not a list with one list of channel rates for each client: it is empty.")
    width = len(problem.rates_bps[0])
    if width == 0:
        raise ProblemError("rates_bps[0] is empty: every client needs a rate on at least one channel (0 for no link).")
    for index, row in enumerate(problem.rates_bps):
        if len(row) != width:
            raise ProblemError(
                f"rates_bps is ragged: client {index} has {len(row)} channels and client 0 has {width}; "
                "give every client the same channels (0 for no link)."
            )
    count = len(problem.rates_bps)
    for name in (*PER_CLIENT, "debts"):
        values = getattr(problem, name, None)
        if values is not None and len(values) != count:
            raise ProblemError(
                f"{name} has {len(values)} entries, but rates_bps has {count} clients: give one for each."
            )


def _error_table(rows: list[list[float]], num_clients: int) -> FloatArray:
    """The expected errors [client, q - 1]."""
    if len(rows) != num_clients:
        raise ProblemError(
            f"upload_errors has {len(rows)} entries, but rates_bps has {num_clients} clients: give one list for each."
        )
    for index, row in enumerate(rows):
        if len(row) != MAX_NUM_BITS:
            raise ProblemError(
                f"upload_errors[{index}] has {len(row)} entries: give one error for each of 1 to {MAX_NUM_BITS} bits."
            )
        rise = next((q for q in range(1, MAX_NUM_BITS) if row[q] > row[q - 1]), None)
        if rise is not None:
            raise ProblemError(
                f"upload_errors[{index}][{rise}] = {row[rise]:g} is above the error {row[rise - 1]:g} with one bit "
                "less: errors must not rise with the bits."
            )
    return np.array(rows, dtype=float)


def _check_constants(constants: Constants, papers: bool) -> None:
    swapped = first_above(constants.frequency_min_hz, constants.frequency_max_hz)
    if swapped:
        raise ProblemError(
            f"constants.frequency_min_hz = {swapped[0]:g} is above frequency_max_hz = {swapped[1]:g}: swap them."
        )
    if constants.local_updates < constants.local_epochs:
        raise ProblemError(
            f"constants.local_updates = {constants.local_updates} is below local_epochs = {constants.local_epochs}: "
            "each epoch needs at least one update."
        )
    if not papers:
        return
    try:
        bound.require_valid_bound(
            learning_rate=constants.learning_rate,
            smoothness=constants.smoothness,
            local_updates=constants.local_updates,
        )
    except ConfigError as error:
        raise ProblemError(str(error).replace("learning.", "constants.")) from None


def _check_power(constants: Constants, largest_bps: float) -> None:
    c = constants
    if c.bandwidth_hz == 0.0:
        raise ProblemError("constants.transmit_power_min_w adapts the power, and that needs constants.bandwidth_hz.")
    swapped = first_above(c.transmit_power_min_w, c.transmit_power_w)
    if swapped:
        raise ProblemError(
            f"constants.transmit_power_min_w = {swapped[0]:g} is above transmit_power_w = {swapped[1]:g}: swap them."
        )
    if largest_bps > MOST_EFFICIENCY * c.bandwidth_hz:
        raise ProblemError(
            f"a rate of {largest_bps:g} b/s needs more than {MOST_EFFICIENCY:g} bits per second and hertz of "
            f"constants.bandwidth_hz = {c.bandwidth_hz:g}: give the bandwidth of one channel."
        )


def _sentence(error: ValidationError, papers: bool) -> str:
    """The first mistake as one sentence."""
    needed = NEEDED if papers else tuple(_PlainProblem.model_fields)
    constants = [name for name in CONSTANTS if papers or name not in PAPERS_CONSTANTS]
    errors = error.errors(include_url=False)
    missing = [e for e in errors if e["type"] == "missing"]
    if missing:
        inner = len(missing[0]["loc"]) > 1
        names = ", ".join(str(e["loc"][-1]) for e in missing if (len(e["loc"]) > 1) == inner)
        wanted = ", ".join(constants if inner else needed)
        return f"{'constants' if inner else 'the problem'} lacks {names}: it needs {wanted}."
    first = errors[0]
    indexes = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
    key = ".".join(part for part in first["loc"] if isinstance(part, str))
    kind, value = first["type"], first["input"]
    if kind == "model_type":
        keys = ", ".join(constants if key else needed)
        return f"{key or 'a problem'} is {'not an object' if key else 'a JSON object'} with the keys {keys}."
    if kind == "list_type" and key in ("rates_bps", "upload_errors"):
        inner_values = "channel rates" if key == "rates_bps" else "errors"
        return f"{key} is not a list with one list of {inner_values} for each client."
    if kind == "list_type":
        return f"{key} = {_shown(value)} is not a list with one number for each client."
    if kind in ("greater_than_equal", "less_than_equal"):
        low, high = LIMITS[key]
        return f"{key}{indexes} = {value:g} is out of range: it must be from {low:g} to {high:g}."
    if kind == "finite_number" or (isinstance(value, int) and not isinstance(value, bool)):
        return f"{key}{indexes} = {_shown(value)} is not finite: give a finite number."
    return f"{key}{indexes} = {_shown(value)} is not a number."


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of more than 30 digits"
    return text if len(text) <= 40 else text[:37] + "..."
