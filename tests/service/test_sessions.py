"""A session decides as a plan of the same federation does, whatever happens between its rounds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import close_round, first_state, open_round
from qccf.rounds.sources import statistics_source
from qccf.rounds.world import build_world
from qccf.runtimes.planner import planned_rules
from qccf.service.answers import RefusedError
from qccf.service.requests import OutcomeBody, RoundBody, ScenarioBody
from qccf.service.sessions import decide_round, description, end_round, new_session
from qccf.service.setup import Setup
from qccf.settings.loading import load_scenario

SETUP = Setup(Path("runs"))
SETTINGS = {"federation.num_clients": 6, "radio.num_channels": 4, "federation.rounds": 6}


def stored(session: dict[str, Any]) -> dict[str, Any]:
    """As it is after a restart of the service."""
    return json.loads(json.dumps(session))


def statistics_json(known: Any, *names: str) -> dict[str, Any]:
    return {name: values.tolist() for name in names if (values := getattr(known, name)) is not None}


@pytest.mark.parametrize("policy", ["qccf", "principle", "no-quantization", "same-size"])
@pytest.mark.parametrize("codec", ["model", "update+entropy"])
def test_a_session_decides_as_the_planner_does(policy: str, codec: str) -> None:
    settings = SETTINGS | {"policy.name": policy, "codec.name": codec, "codec.safety_margin": 0.0}
    scenario = load_scenario("femnist", settings)
    world, rules = build_world(scenario, 0), planned_rules(scenario)
    source = statistics_source(scenario, world.dataset_sizes)
    state, ledger = first_state(rules, source), Ledger()
    session, about = new_session(ScenarioBody(preset="femnist", settings=settings), SETUP)
    assert about["policy"] == policy
    names = ("dataset_sizes", "gradient_norms_sq", "gradient_variances", "weight_ranges", "error_scales",
             "upload_bits", "upload_errors")  # fmt: skip
    for number in range(scenario.federation.rounds):
        opened = open_round(state, rules, world.observe(number, state.statistics))
        uploads = dict(source.uploads(state, opened))
        if number == 2 and uploads:
            uploads.pop(next(iter(uploads)))  # a client that was asked and sent nothing
        told = statistics_json(state.statistics, *names) if number == 0 else {}
        body = RoundBody(round=number, rates_bps=world.cell.round_rates_bps(number).tolist(), **told)
        session, decision = decide_round(stored(session), body)
        for name in ("channels", "num_bits", "frequencies_hz"):
            np.testing.assert_array_equal(decision[name], getattr(opened.decision, name))
        np.testing.assert_array_equal(decision["to_train"], np.flatnonzero(opened.to_train))
        session, outcome = end_round(stored(session), OutcomeBody(round=number, uploads=reports(uploads)))
        state = close_round(state, rules, opened, uploads, ledger, source.evaluate)
        assert outcome["state"] == state.policy_state
        assert outcome["total_energy_j"] == pytest.approx(ledger.last["cumulative_energy_j"], rel=1e-12)
    assert description(session)["round"] == scenario.federation.rounds


def reports(uploads: Any) -> list[dict[str, Any]]:
    rows = []
    for client, upload in uploads.items():
        row: dict[str, Any] = {"client": client} | {
            name: getattr(upload.statistics, name)
            for name in ("gradient_norm_sq", "gradient_variance", "weight_range", "loss")
        }
        if np.isfinite(upload.size_bits):
            row["size_bits"] = upload.size_bits
        if upload.forecast is not None:
            row["error_scale"] = upload.forecast.error_scale
            for name, values in (("upload_bits", upload.forecast.bits), ("upload_errors", upload.forecast.errors)):
                if values is not None:
                    row[name] = values.tolist()
        rows.append(row)
    return rows


def begun(**more: Any) -> dict[str, Any]:
    settings = SETTINGS | {"codec.name": "model"} | more
    return new_session(ScenarioBody(settings=settings), SETUP)[0]


def first_body(**more: Any) -> RoundBody:
    known = {name: [1.0] * 6 for name in ("gradient_norms_sq", "weight_ranges")} | {"dataset_sizes": [1000.0] * 6}
    return RoundBody(**({"rates_bps": [[8e7] * 4] * 6} | known | more))


def test_steps_in_the_wrong_order_are_refused() -> None:
    session = begun()
    with pytest.raises(RefusedError, match="round 0 is not decided yet") as refused:
        end_round(session, OutcomeBody(uploads=[]))
    assert refused.value.status == 409
    session, _ = decide_round(session, first_body())
    with pytest.raises(RefusedError, match="round 0 is decided and has no outcome"):
        decide_round(session, first_body())
    with pytest.raises(RefusedError, match="round 3 is not the session's next one, which is 0"):
        end_round(session, OutcomeBody(round=3, uploads=[]))
    session, outcome = end_round(session, OutcomeBody(uploads=[]))
    assert outcome["round"] == 1
    assert len(outcome["arrived"]) == 0
    decide_round(session, RoundBody(rates_bps=[[8e7] * 4] * 6))  # nothing else is new


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rates_bps": [[8e7] * 4] * 5}, "rates_bps must have 6 lists of 4 rates"),
        ({"rates_bps": [[8e7] * 4] * 5 + [[8e7]]}, "rates_bps must have 6 lists of 4 rates"),
        ({"weight_ranges": [1.0]}, "weight_ranges has 1 entries, but federation.num_clients = 6"),
        ({"weight_ranges": None}, "the first round lacks weight_ranges"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        decide_round(begun(), first_body(**change))


def test_a_codec_with_sizes_of_its_own_needs_them() -> None:
    with pytest.raises(ConfigError, match=r"the first round lacks upload_bits.*'update\+entropy'"):
        decide_round(begun(**{"codec.name": "update+entropy"}), first_body())


def test_uploads_of_others_and_doubles_are_refused() -> None:
    session, decision = decide_round(begun(), first_body())
    one = {"client": int(decision["to_train"][0]), "gradient_norm_sq": 1.0, "weight_range": 1.0}
    idle = next(client for client in range(6) if client not in decision["to_train"])
    with pytest.raises(ConfigError, match=f"client {idle} was not asked"):
        end_round(session, OutcomeBody(uploads=[one | {"client": idle}]))
    with pytest.raises(ConfigError, match="listed twice"):
        end_round(session, OutcomeBody(uploads=[one, one]))


def test_the_range_of_weights_follows_the_reports() -> None:
    """Without a forecast of its own the error follows from θ_max, so a larger one needs more bits."""
    bits = {}
    for weight_range in (0.5, 50.0):
        session, decision = decide_round(begun(**{"control.slack": 2.0}), first_body(weight_ranges=[0.5] * 6))
        sent = [{"client": int(k), "gradient_norm_sq": 1.0, "weight_range": weight_range} for k in decision["to_train"]]
        session, _ = end_round(session, OutcomeBody(uploads=sent))
        bits[weight_range] = session["statistics"]["weight_ranges"]
    assert bits[50.0] != bits[0.5]
