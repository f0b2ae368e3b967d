"""Verdicts on made-up runs: every claim holds where the runs are as claimed, and none where they are reversed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from qccf.core.intervals import Estimate, estimate
from qccf.paper import claims
from qccf.paper.claims import CAUSES, CLAIMS, Judged, cause_of, judge
from qccf.paper.diagnosis import evidence, not_confirmed, read_notes
from qccf.paper.families import Family, families, setting_of
from qccf.paper.run_measures import energy_saved_to_target, rounds_ahead, rounds_to, target_accuracies
from qccf.paper.verdicts import DOWN, UP, ZERO, Rule, adjusted_chances, answer, chances, combined, ordering
from tests.helpers.made_runs import AS_CLAIMED, REVERSED, ROUNDS, SEEDS, first_rounds, made_family, made_record

KEYS = [claim.key for claim in CLAIMS]


def verdicts(family: Family) -> dict[str, Judged]:
    return {one.claim.key: one for one in judge(family)}


def world(**changes: dict) -> dict[str, dict]:
    """As claimed, with changes per policy; `same_size` stands for same-size."""
    changed = {name.replace("_", "-"): truth for name, truth in changes.items()}
    return {name: truth | changed.get(name, {}) for name, truth in AS_CLAIMED.items()}


@pytest.fixture(scope="module")
def as_claimed() -> dict[str, Judged]:
    return verdicts(made_family(AS_CLAIMED))


@pytest.fixture(scope="module")
def reversed_world() -> dict[str, Judged]:
    return verdicts(made_family(REVERSED, reverse=True))


@pytest.mark.parametrize("key", KEYS)
def test_a_claim_holds_where_the_world_is_as_claimed(as_claimed, key: str) -> None:
    assert as_claimed[key].verdict == "holds", as_claimed[key].findings


@pytest.mark.parametrize("key", KEYS)
def test_a_claim_does_not_hold_in_the_reversed_world(reversed_world, key: str) -> None:
    assert reversed_world[key].verdict == "refuted", reversed_world[key].findings


UNKNOWN = math.nan


def one_answer(e: Estimate, rule: Rule, margin: float) -> str:
    """The answer on a number that is tested alone: Holm's method then adjusts its own tests only."""
    (adjusted,) = adjusted_chances([chances(e, rule, margin)])
    return answer(e, rule, adjusted)


@pytest.mark.parametrize(
    ("mean", "half", "up", "down", "none"),
    [
        (3.0, 0.5, "holds", "refuted", "refuted"),
        (-3.0, 0.5, "refuted", "holds", "refuted"),
        (0.4, 2.0, "not settled", "not settled", "not settled"),  # over 0: no side is favoured
        (-0.4, 2.0, "not settled", "not settled", "not settled"),
        (0.1, 0.3, "tie", "tie", "holds"),  # shown not to matter
        (0.6, 0.1, "tie", "tie", "holds"),  # above 0, and yet too small to matter
        (1.5, 0.3, "holds", "refuted", "not settled"),
        (0.0, 0.0, "tie", "tie", "holds"),
        (2.0, UNKNOWN, "not measurable", "not measurable", "not measurable"),
    ],
)
def test_directions_and_equivalence(mean, half, up, down, none) -> None:
    """With a margin of 1.5 and eight seeds."""
    e = Estimate(mean, half, 8)
    assert tuple(one_answer(e, rule, 1.5) for rule in (UP, DOWN, ZERO)) == (up, down, none)


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (0.47, 0.02, "holds"),
        (0.48, 0.20, "holds in part"),  # the paper's number is inside, but so is half of it
        (0.20, 0.02, "holds in part"),
        (0.70, 0.02, "holds in part"),
        (0.30, 0.40, "not settled"),
        (0.01, 0.02, "tie"),
        (-0.30, 0.10, "refuted"),
        (0.48, UNKNOWN, "not measurable"),
    ],
)
def test_a_magnitude_needs_a_narrow_interval_around_the_papers_number(mean, half, verdict) -> None:
    assert one_answer(Estimate(mean, half, 8), Rule("magnitude", papers=0.4821), 0.05) == verdict


def test_tests_of_a_group_are_adjusted_together() -> None:
    """By hand: p = 0.012 (two-sided) is significant alone, where Holm doubles it, and not beside four others."""
    values = [0.2, 0.5, 0.9, 0.4, 0.1, 0.8]
    e = estimate(values)
    assert chances(e, UP, 0.01)["unequal"] == pytest.approx(ttest_1samp(values, 0.0).pvalue)
    assert chances(e, UP, 0.01)["unequal"] == pytest.approx(0.012, abs=0.002)
    alone = adjusted_chances([chances(e, UP, 0.01)])[0]
    five = adjusted_chances([chances(e, UP, 0.01)] * 5)[0]
    assert alone["unequal"] == pytest.approx(2 * chances(e, UP, 0.01)["unequal"])
    assert five["unequal"] == pytest.approx(10 * chances(e, UP, 0.01)["unequal"])
    assert (answer(e, UP, alone), answer(e, UP, five)) == ("holds", "not settled")


def test_parts_combine_by_the_stated_rules() -> None:
    assert ordering(["holds", "holds"]) == combined(["holds", "holds"]) == "holds"
    for other in ("not settled", "not measurable", "tie"):
        assert ordering(["holds", other]) == combined(["holds", other]) == "holds in part"
    assert ordering(["holds", "refuted"]) == "refuted", "one rival ahead is enough"
    assert combined(["holds", "refuted"]) == combined(["holds in part", "refuted"]) == "holds in part"
    assert combined(["refuted", "not settled"]) == combined(["tie", "refuted"]) == "refuted"
    assert ordering(["tie", "not settled"]) == combined(["not settled", "not measurable"]) == "not settled"
    assert ordering(["tie", "tie"]) == combined(["tie", "not measurable"]) == "tie"
    assert ordering(["not measurable"]) == combined([]) == "not measurable"


def test_one_policy_alone_and_one_seed_alone() -> None:
    mine = {
        "weights": "holds",
        "flat": "holds",
        "beta": "holds in part",
        "bits-rounds": "holds in part",
        "bits-sizes": "holds in part",
    }
    lonely = verdicts(made_family({"qccf": AS_CLAIMED["qccf"]}))
    assert {key: one.verdict for key, one in lonely.items()} == dict.fromkeys(KEYS, "not measurable") | mine
    assert {one.verdict for one in judge(made_family(AS_CLAIMED, seeds=1))} == {"not measurable"}


def test_a_missing_policy_leaves_a_gap_that_is_named() -> None:
    without = {name: truth for name, truth in AS_CLAIMED.items() if name != "principle"}
    judged = verdicts(made_family(without))
    assert judged["least-energy"].verdict == "holds in part", "first of four, and the fourth is not here"
    assert "principle unknown –" in judged["least-energy"].findings[0].value
    for key in ("saves-principle", "late-slowdown", "final-bits"):
        assert judged[key].verdict == "not measurable", key
    assert judged["saves-same-size"].verdict == "holds"
    assert [f.verdict for f in judged["beta"].findings] == ["holds", "not measurable", "holds"]


def test_a_saving_is_judged_at_each_beta_and_all_must_hold() -> None:
    """In the paper's amount at one β only: that is a part of the claim."""
    records = list(made_family(AS_CLAIMED).records)
    for k, record in enumerate(records):
        if record.policy == "same-size" and setting_of(record).beta == 300.0:
            records[k] = made_record(
                "same-size", record.seed, beta=300.0, **world(same_size={"energy": 1.2})["same-size"]
            )
    judged = verdicts(Family(tuple(records)))
    assert [(f.part, f.verdict) for f in judged["saves-same-size"].findings] == [
        ("β = 150", "holds"),
        ("β = 300", "holds in part"),
    ]
    assert "less than the paper's" in judged["saves-same-size"].findings[1].value
    assert judged["saves-same-size"].verdict == "holds in part"
    assert judged["saves-same-size"].why.startswith(
        "The direction holds, but not that it is the paper's number: β = 300, same-size: +"
    )
    assert judged["least-energy"].verdict == "holds"


def test_one_rival_that_spends_less_refutes_the_superlative() -> None:
    one = verdicts(made_family(world(principle={"energy": 0.8})))["least-energy"]
    assert one.verdict == "refuted"
    assert {f.rivals for f in one.findings} == {("principle",)}
    assert "same-size +" in one.findings[0].value
    assert "✓" in one.findings[0].value


def test_a_tie_is_neither_a_victory_nor_a_refutation() -> None:
    """As fast as the unquantized model, and faster than the others."""
    one = verdicts(made_family(world(no_quantization={"speed": 0.12})))["fastest"]
    assert one.verdict == "holds in part"
    assert {m.answer for f in one.findings for m in f.measures if m.against == "no-quantization"} <= {
        "tie",
        "not settled",
    }
    assert {f.rivals for f in one.findings} == {("no-quantization",)}
    assert "no-quantization " in one.findings[0].value


def test_an_advantage_that_seeds_do_not_agree_on_is_not_settled() -> None:
    records = []
    for record in made_family(AS_CLAIMED, seeds=4).records:
        better = 1.5 if record.seed % 2 else 0.7
        if record.policy in ("same-size", "principle", "channel-allocate", "no-quantization"):
            truth = AS_CLAIMED[record.policy] | {"energy": better}
            records.append(made_record(record.policy, record.seed, beta=setting_of(record).beta, **truth))
        else:
            records.append(record)
    judged = verdicts(Family(tuple(records)))
    for key in ("least-energy", "saves-principle", "saves-same-size"):
        assert {f.verdict for f in judged[key].findings} == {"not settled"}, key
        assert judged[key].verdict == "not settled", key


def test_targets_are_a_seeds_own() -> None:
    family = made_family(AS_CLAIMED)
    setting = family.comparisons()[0]
    targets = target_accuracies(family, setting)
    assert sorted(targets) == list(range(SEEDS))
    finals = [family.of(setting, name)[3].final_accuracy() for name in family.labels(setting)]
    assert targets[3] == pytest.approx(0.95 * max(finals))
    run = made_record("qccf", 0, speed=0.12)
    first = rounds_to(run, 0.5)
    assert run.accuracy[first - 3 : first].mean() >= 0.5 > run.accuracy[first - 4 : first - 1].mean()
    assert rounds_to(run, 0.99) is None
    assert rounds_to(run, math.nan) is None


def test_a_run_that_never_reaches_the_target_gains_nothing() -> None:
    quick, slow, cheap = (
        made_record("qccf", 0, speed=0.12),
        made_record("qccf", 0, speed=0.02),
        made_record("qccf", 0, speed=0.02, energy=0.01),
    )
    first = rounds_to(quick, 0.7)
    assert rounds_to(slow, 0.7) is None
    assert rounds_ahead(slow, quick, 0.7) == ROUNDS + 1 - first
    assert rounds_ahead(quick, slow, 0.7) == first - ROUNDS - 1
    assert math.isnan(rounds_ahead(slow, slow, 0.7))
    assert energy_saved_to_target(slow, quick, 0.7) == pytest.approx(1 - quick.energy_j[first - 1] / slow.energy_j[-1])
    assert energy_saved_to_target(quick, cheap, 0.7) == 0.0, "cheap, but it never reaches the target"
    assert energy_saved_to_target(quick, slow, 0.7) < 0.0
    assert math.isnan(energy_saved_to_target(slow, cheap, 0.7))


def test_seeds_on_which_a_policy_never_reaches_the_target_are_counted() -> None:
    records = [
        made_record("same-size", r.seed, beta=setting_of(r).beta, **AS_CLAIMED["same-size"] | {"ceiling": 0.5})
        if r.policy == "same-size" and r.seed < 2
        else r
        for r in made_family(AS_CLAIMED).records
    ]
    one = verdicts(Family(tuple(records)))["fastest"]
    assert one.verdict == "holds"
    assert f"same-size on 2 of {SEEDS} seeds" in one.findings[0].value


def test_without_accuracies_only_what_needs_them_is_not_measurable() -> None:
    unknown = {"test_accuracy": np.full(ROUNDS, np.nan)}
    blind = [replace(r, round_columns=r.round_columns | unknown) for r in made_family(AS_CLAIMED).records]
    judged = verdicts(Family(tuple(blind)))
    for key in ("fastest", "least-energy-to-target", "flat"):
        assert judged[key].verdict == "not measurable", key
    gains = [f for f in judged["late-slowdown"].findings if "gain in the last third" in f.part]
    assert {f.verdict for f in gains} == {"not measurable"}
    assert judged["weights"].verdict == "holds in part"
    assert judged["least-energy"].verdict == "holds"


def test_runs_that_have_not_ended_are_not_judged() -> None:
    """Half of a baseline's rounds cost half of its energy, which is no advantage."""
    records = []
    for r in made_family(AS_CLAIMED).records:
        half = replace(first_rounds(r, ROUNDS // 2), summary=r.summary | {"finished": False})
        records.append(half if r.policy == "principle" and r.seed == 0 else r)
    one = verdicts(Family(tuple(records)))["saves-principle"]
    assert one.verdict == "holds"
    unfinished = [replace(r, summary=r.summary | {"finished": False}) for r in records]
    assert {one.verdict for one in judge(Family(tuple(unfinished)))} == {"not measurable"}


def test_of_several_codecs_the_papers_is_judged() -> None:
    records = list(made_family(AS_CLAIMED).records)
    scenario = records[0].scenario.replaced(codec={"name": "update"})
    other = [replace(made_record("qccf", seed, energy=9.0), scenario=scenario) for seed in range(SEEDS)]
    assert verdicts(Family((*records, *other)))["least-energy"].verdict == "holds"


def test_bits_that_never_change_do_not_rise() -> None:
    one = verdicts(made_family(world(qccf={"rise": 0.0, "noise": 0.0})))["bits-rounds"]
    mine = [f for f in one.findings if f.part.endswith(": qccf")]
    assert [(f.value, f.verdict) for f in mine] == [("+0.00 (+0.00 to +0.00)", "tie")] * 2


def test_without_lost_uploads_principle_is_not_slow_for_their_sake() -> None:
    slow = world(principle={"lost": 0.0, "speed": 0.2, "ceiling": 0.6})
    findings = verdicts(made_family(slow))["late-slowdown"].findings
    assert {f.verdict for f in findings} == {"refuted"}
    assert "but no upload is lost" in findings[0].value
    one_seed = verdicts(made_family(slow, seeds=1))["late-slowdown"].findings
    assert {f.verdict for f in one_seed} == {"not measurable"}


def test_a_relation_to_sizes_is_not_hidden_by_bits_that_rise_for_all() -> None:
    """Principle's bits follow the size in every round, and grow by ten from the first round to the last."""
    one = verdicts(made_family(world(principle={"rise": 0.5, "slope": 2.0, "noise": 0.0})))["bits-sizes"]
    mine = [f for f in one.findings if f.part.endswith(": principle")]
    assert all(f.measures[0].estimate.low > 0.9 for f in mine)


def test_the_same_lead_on_every_seed_still_has_an_interval() -> None:
    """Rounds are counted: equal counts on three seeds do not make an interval of no width."""
    alike = [
        replace(made_record(policy, 0, speed=speed), scenario=made_record(policy, seed).scenario)
        for seed in range(3)
        for policy, speed in (("qccf", 0.12), ("same-size", 0.1))
    ]
    (finding,) = verdicts(Family(tuple(alike)))["fastest"].findings
    lead = next(m.estimate for m in finding.measures if m.against == "same-size")
    assert lead.mean == round(lead.mean)
    assert lead.half == pytest.approx(4.3027 / math.sqrt(12 * 3), rel=1e-4)


def test_flat_is_asked_of_every_smaller_v() -> None:
    """A dip in the middle is not flat, even if both ends agree."""
    dipped = [
        made_record("qccf", r.seed, weight=10.0, **AS_CLAIMED["qccf"] | {"ceiling": 0.7})
        if setting_of(r).energy_weight == 10.0
        else r
        for r in made_family(AS_CLAIMED).records
    ]
    one = verdicts(Family(tuple(dipped)))["flat"]
    assert [(f.part, f.verdict) for f in one.findings] == [
        ("V = 1 against 100, flat", "holds"),
        ("V = 10 against 100, flat", "refuted"),
        ("V = 10000 against 100, where it should fall", "holds"),
    ]


def test_an_advantage_that_is_not_confirmed_comes_with_its_numbers() -> None:
    judged = judge(made_family(world(principle={"energy": 0.8}, qccf={"rise": 0.0, "noise": 0.0})))
    assert next(one for one in judged if one.claim.key == "bits-rounds").verdict == "holds in part", (
        "a claim, but no advantage"
    )
    missing = {one.claim.key: one for one in not_confirmed(judged)}
    assert set(missing) == {"least-energy", "saves-principle"}, "to the target it never gets"
    sentences = evidence(missing["least-energy"])
    assert [sentence.partition(":")[0] for sentence in sentences] == ["β = 150, principle", "β = 300, principle"]
    assert float(sentences[0].partition("energy ")[2].split()[0]) == pytest.approx(-20.0, abs=0.5)
    assert "25% of its energy for computing (QCCF 25%)" in sentences[0]
    assert "19.0% of its uploads late (QCCF 0.0%)" in sentences[0]


def test_notes_name_claim_dataset_and_verdict() -> None:
    notes = read_notes("# Causes\n\n## least-energy, emnist: refuted\nIt is\nso.\n\n## Other things\nx\n")
    assert list(notes) == [("least-energy", "emnist")]
    assert notes["least-energy", "emnist"].verdict == "refuted"
    assert notes["least-energy", "emnist"].text == "It is\nso."


def test_claims_about_accuracy_are_not_judged_where_too_little_was_learned() -> None:
    """The made data is EMNIST, for which 70 % was required before the runs."""
    poor = [
        replace(r, round_columns=r.round_columns | {"test_accuracy": 0.8 * r.accuracy})
        for r in made_family(AS_CLAIMED).records
    ]
    judged = verdicts(Family(tuple(poor)))
    for key in ("fastest", "least-energy-to-target", "flat"):
        assert judged[key].verdict == "not measurable", key
        assert judged[key].why.startswith("Without quantization the runs reach 6"), key
        assert "70% was required" in judged[key].why
    assert judged["least-energy"].verdict == "holds", "energy needs no accuracy"
    assert judged["weights"].verdict == "holds in part"
    assert "70%" not in judged["weights"].why


def test_a_comparison_of_energy_rests_on_the_baseline_whatever_claim_it_is_part_of() -> None:
    assert cause_of("energy", "principle, paper") == "principle"
    assert cause_of("energy", "same-size") == "same-size"
    assert cause_of("energy", "channel-allocate") == "energy"
    assert cause_of("learning", "principle") == "learning"
    assert cause_of("same-size", "principle") == "principle", "energy over β"


def test_numbers_are_adjusted_with_those_of_their_own_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Least energy against principle, and principle's energy over β, are tested beside principle's other numbers."""
    groups = []

    def adjusted(found: list) -> list:
        groups.append(found)
        return adjusted_chances(found)

    monkeypatch.setattr(claims, "adjusted_chances", adjusted)
    judged = verdicts(made_family(AS_CLAIMED))
    sizes = dict(zip(CAUSES, map(len, groups), strict=True))
    numbers = [(one.claim, f, m) for one in judged.values() for f in one.findings for m in f.measures]
    assert sum(sizes.values()) == len(numbers)
    of_claims = [m for claim, _, m in numbers if claim.cause == "principle"]
    least = [m for claim, _, m in numbers if claim.cause == "energy" and m.against == "principle"]
    over_beta = [m for claim, f, m in numbers if claim.key == "beta" and f.part == "principle"]
    assert least
    assert over_beta
    assert sizes["principle"] == len(of_claims) + len(least) + len(over_beta)


def test_every_claim_rests_on_a_cause_and_says_why(as_claimed, reversed_world) -> None:
    assert {claim.cause for claim in CLAIMS} == set(CAUSES)
    for judged in (as_claimed, reversed_world):
        for one in judged.values():
            assert one.why.endswith("."), one.why
    assert as_claimed["saves-principle"].why == "All numbers agree; the weakest is " + (
        f"{as_claimed['saves-principle'].deciding()[0]}: "
        f"{as_claimed['saves-principle'].deciding()[1].quantity.shown(as_claimed['saves-principle'].deciding()[1].estimate)}."
    )
    assert reversed_world["least-energy"].why.startswith("On the other side: β = ")


def test_runs_with_options_that_others_do_not_state_are_told_apart() -> None:
    plain = made_record("qccf", 0)
    smoothed = replace(plain, scenario=plain.scenario.replaced(learning={"loss_options": {"label_smoothing": 0.1}}))
    notes = [family.note for family in families([plain, smoothed])]
    assert notes == ["learning.loss_options = {}", "learning.loss_options.label_smoothing = 0.1"]
