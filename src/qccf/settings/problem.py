"""One round's problem as JSON: what `qccf decide` reads and writes. `docs/decide.md` describes both."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from qccf.control import bound
from qccf.control.problem import RoundProblem
from qccf.core.contracts import Constants, Decision, FloatArray, Observation, Statistics
from qccf.core.errors import ConfigError, ProblemError
from qccf.devices.cost import settle

# Limits: wide enough for any radio, any model and any unit, narrow enough that no formula overflows.
_RATES = (0.0, 1e15)
_QUEUES = (-1e12, 1e12)
_PER_CLIENT = {
    "dataset_sizes": (1e-3, 1e12),
    "gradient_norms_sq": (0.0, 1e12),
    "gradient_variances": (0.0, 1e12),
    "weight_ranges": (0.0, 1e9),
}
_CONSTANTS = {
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
_WHOLE = {"num_parameters", "local_updates", "local_epochs"}
_KEYS = {"rates_bps", *_PER_CLIENT, "participation_queue", "quantization_queue", "constants"}


def read_problem(path: str) -> tuple[RoundProblem, list[str]]:
    """The problem in a file, or on standard input for "-", and the keys in it that mean nothing here."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ProblemError(f"{path}: cannot be read: {reason}.") from None
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ProblemError(f"{path}: is not valid JSON: {reason}.") from None
    return parse_problem(tree), _unknown_keys(tree)


def parse_problem(tree: Any) -> RoundProblem:
    """Check every rule of the format and build the problem."""
    if not isinstance(tree, dict):
        raise ProblemError(f"a problem is a JSON object with the keys {', '.join(sorted(_KEYS))}.")
    missing = sorted(_KEYS - tree.keys())
    if missing:
        raise ProblemError(f"the problem lacks {', '.join(missing)}: every problem has {', '.join(sorted(_KEYS))}.")
    rates_bps = _rates(tree["rates_bps"])
    per_client = {key: _client_values(tree[key], key, len(rates_bps)) for key in _PER_CLIENT}
    return RoundProblem(
        Observation(rates_bps, Statistics(**per_client)),
        _constants(tree["constants"]),
        _number(tree["participation_queue"], "participation_queue", _QUEUES),
        _number(tree["quantization_queue"], "quantization_queue", _QUEUES),
    )


def _unknown_keys(tree: dict[str, Any]) -> list[str]:
    constants = tree.get("constants")
    inner = constants.keys() - _CONSTANTS.keys() if isinstance(constants, dict) else set()
    return sorted(tree.keys() - _KEYS) + sorted(f"constants.{key}" for key in inner)


def decision_to_json(problem: RoundProblem, decision: Decision) -> dict[str, Any]:
    """The decision and its certificate as plain values."""
    assert decision.certificate is not None
    outcome = settle(decision, problem.observation, problem.constants)
    return {
        "channels": decision.channels.tolist(),
        "num_bits": decision.num_bits.tolist(),
        "frequencies_hz": decision.frequencies_hz.tolist(),
        "objective": decision.certificate.objective,
        "energy_j": float(outcome.energy_j.sum()),
        "lower_bound": decision.certificate.lower_bound,
        "certified_gap": decision.certificate.gap,
        "solver": decision.certificate.solver,
        "wall_time_s": decision.certificate.wall_time_s,
    }


def _number(value: Any, key: str, limits: tuple[float, float]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(f"{key} = {_shown(value)} is not a number.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ProblemError(f"{key} = {_shown(value)} is not finite: give a finite number.")
    low, high = limits
    if not low <= number <= high:
        raise ProblemError(f"{key} = {number:g} is out of range: it must be from {low:g} to {high:g}.")
    return number


def _rates(value: Any) -> FloatArray:
    if not isinstance(value, list) or not value or not all(isinstance(row, list) for row in value):
        raise ProblemError("rates_bps is not a list with one list of channel rates for each client.")
    width = len(value[0])
    if width == 0:
        raise ProblemError("rates_bps[0] is empty: every client needs a rate on at least one channel (0 for no link).")
    for index, row in enumerate(value):
        if len(row) != width:
            raise ProblemError(
                f"rates_bps is ragged: client {index} has {len(row)} channels and client 0 has {width}; "
                "give every client the same channels (0 for no link)."
            )
    return np.array(
        [[_number(rate, f"rates_bps[{i}][{c}]", _RATES) for c, rate in enumerate(row)] for i, row in enumerate(value)]
    )


def _client_values(value: Any, key: str, num_clients: int) -> FloatArray:
    if not isinstance(value, list):
        raise ProblemError(f"{key} = {_shown(value)} is not a list with one number for each client.")
    if len(value) != num_clients:
        raise ProblemError(
            f"{key} has {len(value)} entries, but rates_bps has {num_clients} clients: give one for each."
        )
    return np.array([_number(entry, f"{key}[{index}]", _PER_CLIENT[key]) for index, entry in enumerate(value)])


def _constants(value: Any) -> Constants:
    if not isinstance(value, dict):
        raise ProblemError(f"constants is not an object with the keys {', '.join(_CONSTANTS)}.")
    missing = [name for name in _CONSTANTS if name not in value]
    if missing:
        raise ProblemError(f"constants lacks {', '.join(missing)}.")
    numbers: dict[str, Any] = {}
    for name, limits in _CONSTANTS.items():
        number = _number(value[name], f"constants.{name}", limits)
        if name in _WHOLE:
            if number != int(number):
                raise ProblemError(f"constants.{name} = {number:g} is not a whole number.")
            number = int(number)
        numbers[name] = number
    constants = Constants(**numbers)
    if constants.frequency_min_hz > constants.frequency_max_hz:
        raise ProblemError(
            f"constants.frequency_min_hz = {constants.frequency_min_hz:g} is above frequency_max_hz = "
            f"{constants.frequency_max_hz:g}: swap them."
        )
    if constants.local_updates % constants.local_epochs:
        raise ProblemError(
            f"constants.local_updates = {constants.local_updates} is not a multiple of local_epochs = "
            f"{constants.local_epochs}: each epoch has the same number of updates."
        )
    try:
        bound.require_valid_bound(
            learning_rate=constants.learning_rate,
            smoothness=constants.smoothness,
            local_updates=constants.local_updates,
        )
    except ConfigError as error:
        raise ProblemError(str(error).replace("learning.", "constants.")) from None
    return constants


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of more than 30 digits"
    return text if len(text) <= 40 else text[:37] + "..."
