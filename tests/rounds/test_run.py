"""The measures and the summary of a run, by hand."""

import numpy as np
import pytest

from qccf.rounds.run import Run, health_sentences, privacy_sentences, run_summary
from tests.helpers.made_tables import CLIENTS, ROUNDS, made_scenario, made_tables

N, K = np.arange(ROUNDS)[:, None], np.arange(CLIENTS)[None, :]
PER_ROUND = {
    "cumulative_energy_j": np.arange(1.0, ROUNDS + 1.0),
    "compute_energy_j": 0.25,
    "upload_energy_j": 0.75,
    "coding_energy_j": 0.0,
    "receive_energy_j": 0.0,
    "idle_energy_j": 0.0,
    "latency_s": 0.02,
}


def summary(clients: dict | None = None, *settings: str, finished: bool = True) -> dict:
    return run_summary(made_scenario(*settings), *made_tables(PER_ROUND, clients), finished=finished)


def test_final_bits_are_those_of_the_uploads_of_the_last_tenth() -> None:
    """Of 40 rounds the last four count, of six clients the three that take part."""
    clients = {"participated": K < 3, "num_bits": np.where(N >= 36, 5 + K, 2)}
    run = Run(made_scenario(), {}, *made_tables(None, clients))
    assert run.final_bits() == pytest.approx(6.0)
    few = Run(made_scenario(), {}, *made_tables(None, {"num_bits": [[1], [2], [4]]}, num_rounds=3))
    assert few.final_bits() == pytest.approx(4.0), "of three rounds the last one"
    nobody = Run(made_scenario(), {}, *made_tables(None, {"participated": N < 36}))
    assert np.isnan(nobody.final_bits())


def test_a_run_stopped_at_an_accuracy_if_it_finished_before_its_last_round() -> None:
    until = "evaluation.until_accuracy=0.4"
    assert summary(None, until, "federation.rounds=50")["stopped_at_accuracy"] == 0.4
    assert summary(None, until, f"federation.rounds={ROUNDS}")["stopped_at_accuracy"] is None, "all rounds"
    assert summary(None, until, "federation.rounds=50", finished=False)["stopped_at_accuracy"] is None, "not yet"


def test_a_summary_is_that_of_a_finished_training_unless_it_says_otherwise() -> None:
    plain = run_summary(made_scenario(), *made_tables(PER_ROUND))
    assert (plain["kind"], plain["finished"]) == ("train", True)
    assert not summary(finished=False)["finished"]


def test_mean_bits_of_a_summary_are_those_of_the_uploads() -> None:
    assert summary({"participated": K < 3, "num_bits": 1 + K})["mean_bits"] == pytest.approx(2.0)
    assert summary({"participated": False})["mean_bits"] is None


def private(policy: str, uploads: int) -> Run:
    promised = {"delta": 1e-5, "uploads": uploads, "epsilon_server": 2.0 * uploads, "epsilon_models": 3.0}
    return Run(made_scenario(f"policy.name={policy}"), {"privacy": promised}, {}, {})


def test_privacy_sentences_name_the_policy_where_there_are_several() -> None:
    """Of two runs of one policy the one with more uploads promises less."""
    said = "ε = 8 at δ = 1e-05 against the server, for a client with 4 uploads; "
    (one,) = privacy_sentences([private("qccf", 3), private("qccf", 4)])
    assert one.startswith(said)
    both = privacy_sentences([private("qccf", 4), private("principle", 3), Run(made_scenario(), {}, {}, {})])
    assert [sentence[:11] for sentence in both] == ["qccf: ε = 8", "principle: "]


def test_health_sentences_name_the_policy_where_there_are_several() -> None:
    def sick(policy: str) -> Run:
        finding = {"kind": "empty-rounds", "message": "3 rounds were empty: act."}
        return Run(made_scenario(f"policy.name={policy}"), {"health": [finding]}, {}, {})

    assert health_sentences([sick("qccf")]) == ["3 rounds were empty: act."]
    assert health_sentences([sick("qccf"), sick("principle")]) == [
        "qccf: 3 rounds were empty: act.",
        "principle: 3 rounds were empty: act.",
    ]
