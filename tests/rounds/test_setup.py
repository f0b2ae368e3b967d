"""What is built from a scenario: codecs with the layers of the model, rules, and the size of the model."""

import numpy as np
import pytest

from qccf.core.errors import ConfigError, InfeasibleError
from qccf.rounds.setup import (
    build_aggregation_rule,
    build_downlink,
    build_rules,
    build_server_optimizer,
    check_scenario,
    coded_constants,
    scenario_codec,
    with_counted_parameters,
)
from tests.helpers.tiny import Tiny, tiny_scenario


def test_a_codec_gets_the_layers_of_the_model_or_counts_it_as_one() -> None:
    """Each block has a range of 32 bits."""
    scenario = tiny_scenario("codec.name=block", 'codec.options={block = "layer"}')
    one, two = scenario_codec(scenario), scenario_codec(scenario, [640, 10])
    assert one.overhead_bits == 650 + 32
    assert two.overhead_bits == 650 + 2 * 32


def test_a_coded_downlink_gets_the_layers_of_the_model_or_counts_it_as_one() -> None:
    """Each layer has a range of 32 bits."""
    scenario = tiny_scenario("codec.name=update+entropy", "server.downlink=update+block+entropy")
    vector = np.concatenate([np.ones(640), np.full(10, 0.03)]).astype(np.float32)
    one, two = (build_downlink(scenario, layers).codec.forecast(vector) for layers in ([], [640, 10]))
    assert two.bits[0] - one.bits[0] == pytest.approx(32.0, abs=0.1)


@pytest.mark.parametrize(("multiplier", "noisy"), [(0.0, False), (0.5, True)])
def test_any_noise_of_clients_makes_the_rules_noisy(multiplier: float, noisy: bool) -> None:
    scenario = tiny_scenario("privacy.clip_norm=0.5", f"privacy.noise_multiplier={multiplier}")
    assert build_rules(scenario, scenario_codec(scenario)).noisy == noisy


class Affine:
    affine = True

    def __init__(self, bits_per_index: float, overhead_bits: float) -> None:
        self.bits_per_index, self.overhead_bits = bits_per_index, overhead_bits


@pytest.mark.parametrize(
    ("per_index", "overhead", "fits"),
    [(0.5, 0.0, True), (0.5, 0.5, True), (0.0, 5.0, False), (-1.0, 5.0, False), (1.0, -0.5, False)],
)
def test_an_affine_size_must_grow_with_the_bits(per_index: float, overhead: float, fits: bool) -> None:
    scenario, codec = tiny_scenario(), Affine(per_index, overhead)
    if fits:
        constants = coded_constants(scenario, codec)
        assert (constants.bits_per_index, constants.overhead_bits) == (per_index, overhead)
    else:
        with pytest.raises(ConfigError, match="an affine size grows with q"):
            coded_constants(scenario, codec)


def test_a_model_is_counted_where_its_size_is_not_stated() -> None:
    stated = tiny_scenario("learning.num_parameters=99")
    assert with_counted_parameters(stated) is stated
    assert with_counted_parameters(stated, always=True).learning.num_parameters == 650
    unknown = stated.replaced(learning={"num_parameters": 0})
    assert with_counted_parameters(unknown).learning.num_parameters == 650
    assert with_counted_parameters(unknown, model=Tiny).learning.num_parameters == 650


@pytest.mark.parametrize("inner", ["exact", "closed-form"])
@pytest.mark.parametrize("codec", ["model", "model+entropy"])
def test_only_the_exact_solution_can_use_sizes_that_are_not_affine(inner: str, codec: str) -> None:
    scenario = tiny_scenario("control.form=paper", f"control.inner={inner}", f"codec.name={codec}")
    if (inner, codec) == ("closed-form", "model+entropy"):
        with pytest.raises(ConfigError, match="needs bits that are affine in q"):
            check_scenario(scenario)
    else:
        check_scenario(scenario)


def test_options_come_from_the_part_of_a_section_that_is_named_like_its_entry() -> None:
    adam = build_server_optimizer(tiny_scenario("server.optimizer=fedadam", "server.fedadam.learning_rate=0.3"))
    assert adam.options.learning_rate == 0.3
    assert build_aggregation_rule(tiny_scenario("aggregation.mean.most_norm=7")).options.most_norm == 7.0


@pytest.mark.parametrize("name", ["policy.name", "server.optimizer", "aggregation.rule", "attack.kind", "codec.name"])
def test_what_cannot_be_loaded_is_refused_before_anything_is_computed(name: str) -> None:
    with pytest.raises(ConfigError, match="has no Missing"):
        check_scenario(tiny_scenario(f"{name}=tests.helpers.tiny:Missing"))


def test_a_world_in_which_nobody_can_upload_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(InfeasibleError):
        check_scenario(tiny_scenario("radio.gain_db=-100"))


def test_a_downlink_that_codes_whole_models_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(ConfigError, match="codes whole models"):
        check_scenario(tiny_scenario("server.downlink=model+entropy"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["server.optimizer=fedyogi", "server.options={x = 1}"], r"and 'fedyogi' has its own section, server\.fedyogi"),
        (["server.options={x = 1}"], "and 'average' has no options: leave them out"),
        (["aggregation.options={x = 1}"], r"has its own section, aggregation\.mean: use that"),
    ],
)
def test_options_are_for_entries_of_ones_own(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_rules(tiny_scenario(*settings), scenario_codec(tiny_scenario(), [1]))
