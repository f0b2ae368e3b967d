"""The measures and the summary of a run, by hand."""

import numpy as np
import pytest

from qccf.rounds.run import Run, bits_size_correlation, health_sentences, privacy_sentences, run_labels, run_summary
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


def test_the_final_accuracy_is_the_mean_of_the_last_tenth() -> None:
    """Of 20 rounds the last two, as far as they were evaluated."""
    accuracy = np.arange(20.0) / 100.0
    run = Run(made_scenario(), {}, *made_tables({"test_accuracy": accuracy}, num_rounds=20))
    assert run.final_accuracy() == pytest.approx(0.185)
    accuracy[-1] = np.nan
    run = Run(made_scenario(), {}, *made_tables({"test_accuracy": accuracy}, num_rounds=20))
    assert run.final_accuracy() == pytest.approx(0.18)
    never = Run(made_scenario(), {}, *made_tables({"test_accuracy": np.nan}))
    assert np.isnan(never.final_accuracy())


def test_the_share_of_computing_is_of_the_whole_energy() -> None:
    energy = {"compute_energy_j": 1.0, "cumulative_energy_j": [2.0, 5.0, 10.0]}
    assert Run(made_scenario(), {}, *made_tables(energy, num_rounds=3)).computing_share() == pytest.approx(0.3)
    nothing = {"compute_energy_j": 0.0, "cumulative_energy_j": 0.0}
    assert Run(made_scenario(), {}, *made_tables(nothing)).computing_share() == 0.0


def test_the_energy_of_a_client_is_the_sum_of_what_is_known() -> None:
    clients = {"compute_energy_j": 1.0 + K, "upload_energy_j": 2.0, "idle_energy_j": 0.5}
    run = Run(made_scenario(), {}, *made_tables(None, clients, num_rounds=1))
    assert run.client_energy_j().tolist() == [3.5, 4.5, 5.5, 6.5, 7.5, 8.5]


def test_shares_and_means_are_of_the_uploads() -> None:
    some = Run(made_scenario(), {}, *made_tables(None, {"participated": K < 3, "missed": K == 0, "num_bits": 1 + K}))
    assert some.missed_share() == pytest.approx(1.0 / 3.0)
    assert some.mean_upload_bits() == pytest.approx(2.0)
    nobody = Run(made_scenario(), {}, *made_tables(None, {"participated": False}))
    assert nobody.missed_share() == 0.0
    assert np.isnan(nobody.mean_upload_bits())
    assert summary({"participated": K < 3, "missed": K == 0})["missed"] == pytest.approx(1.0 / 3.0)
    assert summary({"participated": (N == 0) & (K == 0), "missed": True})["missed"] == 1.0
    assert summary({"participated": False})["missed"] == 0.0


def test_a_charge_is_in_the_summary_if_any_round_has_it() -> None:
    rounds = PER_ROUND | {"idle_energy_j": np.where(np.arange(ROUNDS) < 4, 0.5, 0.0)}
    found = run_summary(made_scenario(), *made_tables(rounds))
    assert found["idle_energy_j"] == 2.0
    assert "coding_energy_j" not in found
    assert (found["energy_j"], found["compute_energy_j"]) == (float(ROUNDS), 0.25 * ROUNDS)


def test_only_training_promises_privacy() -> None:
    private_settings = made_scenario("privacy.clip_norm=0.5", "privacy.noise_multiplier=0.1")
    tables = made_tables(PER_ROUND)
    assert "privacy" in run_summary(private_settings, *tables)
    assert "privacy" not in run_summary(private_settings, *tables, kind="plan")


def test_bits_and_sizes_are_related_if_both_vary() -> None:
    """One step is enough: two sizes and two numbers of bits among three uploads."""

    def related(sizes: list[int], bits: list[int]) -> float:
        on = [True] * len(bits) + [False] * (CLIENTS - len(bits))
        sizes, bits = ([*values, *[9] * (CLIENTS - len(values))] for values in (sizes, bits))
        clients = {"participated": on, "dataset_size": sizes, "num_bits": bits}
        return bits_size_correlation(made_tables(None, clients, num_rounds=1)[1])

    assert related([10, 11, 11], [2, 3, 3]) == pytest.approx(1.0)
    assert related([10, 11, 11], [3, 2, 2]) == pytest.approx(-1.0)
    assert np.isnan(related([10, 20, 30], [3, 3, 3]))
    assert np.isnan(related([10, 10, 10], [1, 2, 3]))
    assert np.isnan(related([], []))


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        (["qccf update"], ["qccf"]),
        (["qccf update", "qccf model"], ["update", "model"]),
        (["qccf update", "principle update"], ["qccf", "principle"]),
        (
            ["qccf update", "qccf model", "no-quantization update"],
            ["qccf, update", "qccf, model", "no-quantization"],
        ),
    ],
)
def test_a_label_names_what_differs(runs: list[str], labels: list[str]) -> None:
    made = [
        Run(made_scenario(f"policy.name={policy}", f"codec.name={codec}"), {}, {}, {})
        for policy, codec in (run.split() for run in runs)
    ]
    assert run_labels(made) == labels


def test_a_run_says_what_it_is() -> None:
    columns = made_tables(PER_ROUND)
    scenario = made_scenario("policy.name=qccf", "codec.name=update")
    assert repr(Run(scenario, {}, *columns)) == f"Run(qccf, codec update, seed 0: rounds {ROUNDS}, energy 40.0 J)"
    stopped = Run(scenario, {"test_accuracy": 0.5, "finished": False}, *columns)
    assert "rounds 40 so far, accuracy 50.0%, energy" in repr(stopped)
