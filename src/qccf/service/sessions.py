"""A session: a policy's state between the rounds of a federation that somebody else runs.

A session is plain values, so that it can be stored and given to any process. Each step takes a session and a request
and returns the session after it and the answer. Decisions and states are those of `rounds.round`, as everywhere.
"""

import json
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from qccf.core.contracts import Certificate, Decision, FloatArray, Observation, Statistics, Targets
from qccf.core.errors import ConfigError
from qccf.devices.cost import settle
from qccf.learning.results import LocalStatistics
from qccf.quantization.protocol import Forecast
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import OpenRound, RoundRules, ServerState, close_round, open_round, state_at
from qccf.rounds.setup import build_rules, scenario_codec
from qccf.rounds.uplink import Upload
from qccf.service.answers import RefusedError
from qccf.service.requests import OutcomeBody, RoundBody, ScenarioBody, UploadReport, requested_scenario
from qccf.service.setup import Setup
from qccf.settings.loading import Scenario, scenario_from_dict

Session = dict[str, Any]


def new_session(body: ScenarioBody, setup: Setup) -> tuple[Session, dict[str, Any]]:
    """A session before its first round."""
    scenario = requested_scenario(body, setup)
    build_rules(scenario, scenario_codec(scenario))
    session: Session = {
        "scenario": scenario.model_dump(), "round": 0, "statistics": None, "policy_state": None, "opened": None,
        "energy_j": 0.0,
    }  # fmt: skip
    return session, description(session)


def description(session: Session) -> dict[str, Any]:
    """What the service says of a session."""
    tree = session["scenario"]
    return {
        "round": session["round"],
        "decided": session["opened"] is not None,
        "policy": tree["policy"]["name"],
        "codec": tree["codec"]["name"],
        "num_clients": tree["federation"]["num_clients"],
        "num_channels": tree["radio"]["num_channels"],
        "energy_j": session["energy_j"],
        "state": session["policy_state"],
    }


def decide_round(session: Session, body: RoundBody) -> tuple[Session, dict[str, Any]]:
    """Decide the next round from its rates and what is new about the clients."""
    if session["opened"] is not None:
        raise RefusedError(
            409, f"round {session['round']} is decided and has no outcome yet: send the outcome before the next round."
        )
    _require_round(session, body.round)
    scenario, rules = _rules(json.dumps(session["scenario"]))
    rates_bps = _rates(body, scenario)
    statistics = _statistics(session, body, rules, scenario)
    if session["policy_state"] is None:
        state = state_at(rules, statistics, None)
        statistics = state.statistics
    else:
        state = _state(session, statistics, rules)
    opened = open_round(state, rules, Observation(rates_bps, statistics))
    expected = settle(opened.decision, opened.observation, rules.constants)
    decision, certificate = opened.decision, opened.decision.certificate
    answer = {
        "round": session["round"],
        "channels": decision.channels,
        "num_bits": decision.num_bits,
        "frequencies_hz": decision.frequencies_hz,
        "raw": decision.raw,
        "to_train": np.flatnonzero(opened.to_train),
        "energy_j": float(expected.energy_j.sum()),
        "latency_s": float(expected.latency_s.max()),
        "objective": None if certificate is None else certificate.objective,
        "lower_bound": None if certificate is None else certificate.lower_bound,
        "certified_gap": None if certificate is None else certificate.gap,
        "solver": None if certificate is None else certificate.solver,
    }
    kept = {
        "rates_bps": opened.observation.rates_bps.tolist(),
        "decision": _plain(decision),
        "to_train": opened.to_train.tolist(),
    }
    new = {"statistics": _plain(statistics), "policy_state": state.policy_state, "doubts": state.doubts.tolist()}
    return session | new | {"opened": kept}, answer


def end_round(session: Session, body: OutcomeBody) -> tuple[Session, dict[str, Any]]:
    """Settle the decided round with the uploads that arrived, and update the policy's state."""
    if session["opened"] is None:
        raise RefusedError(409, f"round {session['round']} is not decided yet: send its rates first.")
    _require_round(session, body.round)
    _, rules = _rules(json.dumps(session["scenario"]))
    statistics = _restored(Statistics, session["statistics"])
    opened = _opened(session["opened"], statistics)
    uploads: dict[int, Upload] = {}
    for report in body.uploads:
        if report.client >= opened.observation.num_clients or not opened.to_train[report.client]:
            raise ConfigError(f"client {report.client} was not asked to train in this round: leave its upload out.")
        if report.client in uploads:
            raise ConfigError(f"client {report.client} is listed twice: give one upload for each client.")
        uploads[report.client] = _upload(report, statistics)
    state = _state(session, statistics, rules)
    ledger = Ledger()
    after = close_round(state, rules, opened, uploads, ledger, lambda *_: (np.nan, np.nan))
    clients, row = ledger.tables()["clients"], ledger.last
    spent_j = session["energy_j"] + row["energy_j"]
    answer = {
        "round": after.round_index,
        "arrived": np.flatnonzero(clients["arrived"]),
        "missed": np.flatnonzero(clients["missed"]),
        "energy_j": row["energy_j"],
        "total_energy_j": spent_j,
        "latency_s": row["latency_s"],
        "aggregate_error": row["aggregate_error"],
        "error_budget": row["error_budget"],
        "state": after.policy_state,
    }
    new = {"round": after.round_index, "statistics": _plain(after.statistics), "policy_state": after.policy_state}
    new |= {"doubts": after.doubts.tolist()}
    if after.batteries_j is not None:  # infinity is no JSON
        left_j = [value if np.isfinite(value) else None for value in after.batteries_j.tolist()]
        new["batteries_j"] = answer["batteries_j"] = left_j
    return session | new | {"opened": None, "energy_j": spent_j}, answer


def _batteries_j(session: Session, rules: RoundRules) -> FloatArray | None:
    """What is left in the batteries; a client on mains has None."""
    left_j = session.get("batteries_j")
    return rules.batteries_j if left_j is None else np.array([np.inf if one is None else one for one in left_j])


@lru_cache(maxsize=64)
def _rules(scenario_json: str) -> tuple[Scenario, RoundRules]:
    scenario = scenario_from_dict(json.loads(scenario_json))
    return scenario, build_rules(scenario, scenario_codec(scenario))


def _state(session: Session, statistics: Statistics, rules: RoundRules) -> ServerState:
    """The state of a session after its first decision."""
    return ServerState(
        session["round"],
        None,
        session["policy_state"],
        statistics,
        batteries_j=_batteries_j(session, rules),
        doubts=np.array(session.get("doubts", []), dtype=np.int64),
    )


def _require_round(session: Session, number: int | None) -> None:
    if number is not None and number != session["round"]:
        raise RefusedError(409, f"round {number} is not the session's next one, which is {session['round']}.")


def _rates(body: RoundBody, scenario: Scenario) -> FloatArray:
    clients, channels = scenario.federation.num_clients, scenario.radio.num_channels
    widths = {len(row) for row in body.rates_bps}
    if len(body.rates_bps) != clients or widths != {channels}:
        raise ConfigError(
            f"rates_bps must have {clients} lists of {channels} rates, one for each client: federation.num_clients and "
            "radio.num_channels of the session's scenario (0 where there is no link)."
        )
    return np.array(body.rates_bps, dtype=float)


def _statistics(session: Session, body: RoundBody, rules: RoundRules, scenario: Scenario) -> Statistics:
    """What is known of the clients: the last values, and those of this request in their place."""
    known: dict[str, Any] = dict(session["statistics"] or {})
    first = not known
    for one in fields(Statistics):
        name, given = one.name, getattr(body, one.name)
        if given is not None:
            if len(given) != scenario.federation.num_clients:
                raise ConfigError(
                    f"{name} has {len(given)} entries, but federation.num_clients = {scenario.federation.num_clients}: "
                    "give one for each client."
                )
            known[name] = given
    if first:
        known.setdefault("gradient_variances", [0.0] * scenario.federation.num_clients)
        needed = ["dataset_sizes", "gradient_norms_sq", "weight_ranges"]
        needed += [] if rules.codec.affine else ["upload_bits"]
        missing = [name for name in needed if name not in known]
        if missing:
            raise ConfigError(
                f"the first round lacks {', '.join(missing)}, which a decision with codec {scenario.codec.name!r} "
                "needs: state what the clients measured at the initial model."
            )
    statistics: Statistics = _restored(Statistics, known)
    if statistics.upload_bits is not None:
        statistics = replace(statistics, upload_bits=np.maximum.accumulate(statistics.upload_bits, axis=1))
    if statistics.upload_errors is not None:
        statistics = replace(statistics, upload_errors=np.minimum.accumulate(statistics.upload_errors, axis=1))
    return statistics


def _upload(report: UploadReport, known: Statistics) -> Upload:
    """An upload without payload. What it does not forecast stays as it was forecast last."""
    measured = LocalStatistics(report.gradient_norm_sq, report.gradient_variance, report.weight_range, report.loss)
    size = np.nan if report.size_bits is None else report.size_bits
    forecasts = (report.error_scale, report.upload_bits, report.upload_errors)
    if all(one is None for one in forecasts):
        return Upload(None, size, measured, None)
    scale, errors = report.error_scale, report.upload_errors
    if scale is None:
        scale = 0.0 if known.error_scales is None else float(known.error_scales[report.client])
    if errors is None and known.upload_errors is not None:
        errors = known.upload_errors[report.client].tolist()
    bits = None if report.upload_bits is None else np.array(report.upload_bits)
    return Upload(None, size, measured, Forecast(scale, bits, None if errors is None else np.array(errors)))


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass of arrays as plain values."""
    tree = asdict(value)
    return {
        key: {k: _list(v) for k, v in one.items()} if isinstance(one, dict) else _list(one) for key, one in tree.items()
    }


def _list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _restored(kind: Any, tree: dict[str, Any]) -> Any:
    """The dataclass of arrays that `_plain` made the values from."""
    names = {one.name for one in fields(kind)}
    return kind(**{k: np.array(v) if isinstance(v, list) else v for k, v in tree.items() if k in names})


def _opened(tree: dict[str, Any], statistics: Statistics) -> OpenRound:
    decision: Decision = _restored(Decision, tree["decision"])
    certificate, targets = tree["decision"]["certificate"], tree["decision"]["targets"]
    decision = replace(
        decision,
        certificate=None if certificate is None else Certificate(**certificate),
        targets=None if targets is None else _restored(Targets, targets),
    )
    observation = Observation(np.array(tree["rates_bps"], dtype=float), statistics)
    return OpenRound(observation, decision, np.array(tree["to_train"], dtype=bool), observation)
