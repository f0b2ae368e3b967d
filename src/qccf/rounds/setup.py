"""Builds what a run needs from its scenario: codec, policy, rules. Mistakes are found before anything is paid for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qccf.core.contracts import Constants, FloatArray, Policy
from qccf.core.errors import ConfigError
from qccf.core.registry import Registry
from qccf.core.words import article
from qccf.learning.aggregation.protocol import AggregationRule
from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.attacks.protocol import Attack
from qccf.learning.attacks.registry import ATTACKS
from qccf.learning.server.protocol import ServerOptimizer
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.policies.registry import POLICIES
from qccf.quantization.buffers import with_buffers
from qccf.quantization.protocol import Codec
from qccf.quantization.registry import build_codec
from qccf.rounds.aggregation import Aggregator
from qccf.rounds.averaging import ModelAverage
from qccf.rounds.claims import ClaimRules
from qccf.rounds.downlink import CodedDownlink
from qccf.rounds.privacy import check_privacy
from qccf.rounds.round import RoundRules
from qccf.rounds.world import build_world
from qccf.settings.aggregation import WHOLE_MODEL
from qccf.settings.schema import Scenario
from qccf.settings.sections import option_values


def build_policy(name: str, scenario: Scenario, constants: Constants | None = None) -> Policy:
    """The policy of that name, or a user's own as `module:Class`, built for a scenario.

    `constants` are the scenario's with the costs of its codec; without them the paper's quantizer is assumed.
    """
    entry = POLICIES.find(name)
    options = dict(scenario.policy.options)
    if name in POLICIES:
        options = {}
        for holder in (getattr(entry, "also", None), entry):
            section, options_type = getattr(holder, "section", ""), getattr(holder, "Options", None)
            if section and options_type is not None:
                options |= option_values(options_type, getattr(scenario, section))
    rounds = scenario.federation.rounds
    policy: Policy = POLICIES.build(name, constants or scenario.constants(), rounds=rounds, **options)
    return policy


def scenario_codec(scenario: Scenario, layer_sizes: Sequence[int] = ()) -> Codec:
    """The scenario's codec; without layer sizes the model counts as one layer."""
    count = scenario.learning.num_parameters
    codec = build_codec(scenario.codec.name, count, list(layer_sizes) or [count], **scenario.codec.options)
    return with_buffers(codec, count, scenario.learning.num_buffers)


def build_downlink(scenario: Scenario, layer_sizes: Sequence[int] = ()) -> CodedDownlink | None:
    """The coded downlink of a scenario; None where participants receive whole models."""
    name, learning = scenario.server.downlink, scenario.learning
    if name == WHOLE_MODEL:
        return None
    codec = build_codec(name, learning.num_parameters, list(layer_sizes) or [learning.num_parameters])
    if not codec.relative:
        raise ConfigError(
            f"server.downlink = {name!r} codes whole models, and only their changes are coded: use update+entropy, or "
            f"{WHOLE_MODEL!r} for 32-bit floats."
        )
    return CodedDownlink(
        codec,
        scenario.server.downlink_error,
        learning.num_parameters,
        learning.num_buffers,
        scenario.federation.num_clients,
        scenario.federation.seed,
    )


def build_average(scenario: Scenario) -> ModelAverage | None:
    """How a scenario averages its global models; None where the last one counts."""
    return ModelAverage(scenario.server.averaging) if scenario.server.averaging else None


def build_rules(scenario: Scenario, codec: Codec, layer_sizes: Sequence[int] = ()) -> RoundRules:
    """The rules of a run of the scenario's policy and seed with that codec."""
    constants = coded_constants(scenario, codec)
    policy = build_policy(scenario.policy.name, scenario, constants)
    return RoundRules(
        policy,
        codec,
        constants,
        scenario.federation.seed,
        scenario.codec.safety_margin,
        Aggregator(build_aggregation_rule(scenario), build_server_optimizer(scenario)),
        *_fleet(scenario),
        claim_rules(scenario),
        downlink=build_downlink(scenario, layer_sizes),
        average=build_average(scenario),
        noisy=scenario.privacy.noise_multiplier > 0.0,
    )


def claim_rules(scenario: Scenario) -> ClaimRules:
    """The limits of what clients report."""
    section = scenario.claims
    return ClaimRules(section.tolerance, section.most_times_median, tuple(section.dataset_sizes))


def _fleet(scenario: Scenario) -> tuple[FloatArray | None, tuple[str, ...]]:
    """The batteries and the names of the clients' devices."""
    fleet = scenario.fleet()
    return fleet.batteries_j, () if scenario.devices.is_papers else fleet.names


def build_server_optimizer(scenario: Scenario) -> ServerOptimizer:
    """The scenario's server optimizer, or a user's own as `module:Class`."""
    made: ServerOptimizer = _built(SERVER_OPTIMIZERS, scenario.server.optimizer, scenario.server, "server")
    return made


def build_aggregation_rule(scenario: Scenario) -> AggregationRule:
    """The scenario's aggregation rule, or a user's own as `module:Class`."""
    made: AggregationRule = _built(AGGREGATION_RULES, scenario.aggregation.rule, scenario.aggregation, "aggregation")
    return made


def build_attack(scenario: Scenario) -> Attack:
    """What the scenario's attackers do, or a user's own as `module:Class`."""
    made: Attack = _built(ATTACKS, scenario.attack.kind, scenario.attack, "attack")
    return made


def _built(registry: Registry[Any], name: str, section: Any, key: str) -> Any:
    """An entry with the options of its part of a section, or with those for an entry of the user's own."""
    options, entry = dict(section.options), registry.find(name)
    part, options_type = getattr(entry, "section", ""), getattr(entry, "Options", None)
    if name in registry:
        if options:
            instead = f"has its own section, {key}.{part}: use that" if part else "has no options: leave them out"
            raise ConfigError(
                f"{key}.options = {options} is for {article(registry.kind)} {registry.kind} of your own, and {name!r} "
                f"{instead}."
            )
        if part and options_type is not None:
            options = option_values(options_type, getattr(section, part))
    return registry.build(name, **options)


def coded_constants(scenario: Scenario, codec: Codec) -> Constants:
    """The scenario's constants with the size of that codec's payloads."""
    if codec.affine and not (codec.bits_per_index > 0.0 and codec.overhead_bits >= 0.0):
        raise ConfigError(
            f"codec {scenario.codec.name!r} states {codec.bits_per_index:g}·q + {codec.overhead_bits:g} bits, but an "
            "affine size grows with q: say affine = False and list the sizes in the forecast."
        )
    return replace(scenario.constants(), bits_per_index=codec.bits_per_index, overhead_bits=codec.overhead_bits)


def with_counted_parameters(scenario: Scenario, *, always: bool = False, model: Any = None) -> Scenario:
    """The scenario with the size of its model, counted where it is not stated or `always`.

    `model` is the model itself where it was given in Python.
    """
    if scenario.learning.num_parameters and not always:
        return scenario
    learning = scenario.learning
    try:
        from qccf.learning.models.registry import count_values

        size = count_values(learning.model if model is None else model, **learning.model_options)
    except ImportError:
        raise ConfigError(
            f"the parameters of learning.model = {learning.model!r} are counted with torch, which is not "
            "installed: set learning.num_parameters, or pip install 'qccf[sim]'."
        ) from None
    return scenario.replaced(learning={"num_parameters": size.parameters, "num_buffers": size.buffers})


def check_scenario(scenario: Scenario) -> None:
    """Build the policy, the codec and the world once, so that a mistake is refused before anything is computed."""
    build_policy(scenario.policy.name, scenario)
    build_server_optimizer(scenario)
    build_aggregation_rule(scenario)
    build_attack(scenario)
    check_privacy(scenario)
    build_downlink(scenario)
    codec = scenario_codec(scenario)
    if scenario.control.inner != "exact" and not codec.affine:
        raise ConfigError(
            f'control.inner = "{scenario.control.inner}" needs bits that are affine in q, and those of codec '
            f'{scenario.codec.name!r} are not: use inner = "exact", or a codec without entropy coding.'
        )
    build_world(scenario, scenario.federation.seed)
