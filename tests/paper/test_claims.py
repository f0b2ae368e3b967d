"""Verdicts on made-up ledgers: every claim holds where the world is as claimed, and none where it is reversed."""

import pytest

from qccf.report.claims import (
    CLAIMS,
    Judged,
    _unrelated,
    combined,
    energy_to,
    judge,
    negative,
    positive,
    rounds_to,
    target_accuracy,
    within,
)
from qccf.report.intervals import Estimate
from tests.made_runs import AS_CLAIMED, REVERSED, ROUNDS, made_family, made_record

KEYS = [claim.key for claim in CLAIMS]


@pytest.fixture(scope="module")
def as_claimed() -> dict[str, Judged]:
    return {one.claim.key: one for one in judge(made_family(AS_CLAIMED))}


@pytest.fixture(scope="module")
def reversed_world() -> dict[str, Judged]:
    return {one.claim.key: one for one in judge(made_family(REVERSED, reverse=True))}


@pytest.mark.parametrize("key", KEYS)
def test_a_claim_holds_where_the_world_is_as_claimed(as_claimed, key: str) -> None:
    assert as_claimed[key].verdict == "holds", as_claimed[key].findings


@pytest.mark.parametrize("key", KEYS)
def test_a_claim_does_not_hold_in_the_reversed_world(reversed_world, key: str) -> None:
    assert reversed_world[key].verdict == "does not hold", reversed_world[key].findings


def test_without_runs_or_with_one_seed_nothing_is_measurable() -> None:
    lonely = made_family({"qccf": AS_CLAIMED["qccf"]}, seeds=1)
    assert {one.verdict for one in judge(lonely)} == {"not measurable"}
    one_seed = made_family(AS_CLAIMED, seeds=1)
    assert {one.verdict for one in judge(one_seed)} <= {"not measurable", "does not hold"}
    assert next(o for o in judge(one_seed) if o.claim.key == "least-energy").verdict == "not measurable"


def test_a_saving_of_another_size_holds_partly() -> None:
    world = AS_CLAIMED | {"same-size": AS_CLAIMED["same-size"] | {"energy": 1.2}}
    verdicts = {one.claim.key: one for one in judge(made_family(world))}
    assert verdicts["saves-same-size"].verdict == "partly"
    assert "less than the paper's" in verdicts["saves-same-size"].findings[0].value
    assert verdicts["least-energy"].verdict == "holds"


def test_targets_and_what_they_take() -> None:
    family = made_family(AS_CLAIMED)
    setting = family.comparisons()[0]
    target = target_accuracy(family, setting)
    finals = {name: [r.final_accuracy() for r in family.of(setting, name)] for name in family.labels(setting)}
    assert target == pytest.approx(0.95 * max(sum(v) / len(v) for v in finals.values()))
    run = made_record("qccf", 0, speed=0.12)
    first = rounds_to(run, 0.5)
    smooth = run.accuracy[int(first) - 3 : int(first)].mean()
    assert smooth >= 0.5 > run.accuracy[int(first) - 4 : int(first) - 1].mean()
    assert energy_to(run, 0.5) == run.energy_j[int(first) - 1]
    assert rounds_to(run, 0.99) == ROUNDS + 1
    assert energy_to(run, 0.99) == run.energy_j[-1]


def test_verdicts_follow_the_interval() -> None:
    sure, unsure, wrong = Estimate(2, 1, 3), Estimate(1, 2, 3), Estimate(-1, 2, 3)
    assert [positive(e) for e in (sure, unsure, wrong)] == ["holds", "partly", "does not hold"]
    assert negative(Estimate(-2, 1, 3)) == "holds"
    assert [within(e, 4) for e in (sure, Estimate(2, 3, 3), Estimate(5, 3, 3))] == ["holds", "partly", "does not hold"]
    assert positive(Estimate(1, float("nan"), 1)) == "not measurable"
    assert combined(["holds", "not measurable"]) == "holds"
    assert combined(["holds", "does not hold"]) == "partly"
    assert combined(["does not hold", "does not hold"]) == "does not hold"
    assert combined(["partly", "partly"]) == "partly"
    assert combined(["not measurable"]) == "not measurable"


def test_no_relation_must_be_shown() -> None:
    """An interval that holds everything is no evidence of nothing."""
    assert _unrelated(Estimate(-0.05, 0.1, 9)) == "holds"
    assert _unrelated(Estimate(-0.05, 8.0, 2)) == "partly"
    assert _unrelated(Estimate(0.5, 0.1, 9)) == "does not hold"
    assert _unrelated(Estimate(0.0, float("nan"), 1)) == "not measurable"


def test_a_tie_is_no_defeat_but_no_victory() -> None:
    """As fast as the unquantized model, within the noise: that is not 'fastest'."""
    world = AS_CLAIMED | {"no-quantization": AS_CLAIMED["no-quantization"] | {"speed": 0.12}}
    verdicts = {one.claim.key: one.verdict for one in judge(made_family(world))}
    assert verdicts["fastest"] == "partly"
