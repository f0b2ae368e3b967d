"""The sections of the settings, with meaning, unit, default and limits of every key.

Every physical key carries its unit. Limits are wide enough for any sensible cell, and narrow enough that a wrong unit
(MHz for Hz, dBm for W, ms for s) falls outside. The options of policies, server optimizers,
aggregation rules and attacks come from their own files.
"""

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, create_model, model_validator

from qccf.control import bound
from qccf.core.contracts import Constants
from qccf.core.steps import steps_per_epoch
from qccf.devices.fleet import Fleet
from qccf.devices.radio_power.protocol import with_radio_power
from qccf.policies.registry import POLICIES
from qccf.settings.aggregation import AggregationSection, AttackSection, PrivacySection, ServerSection
from qccf.settings.claims import ClaimsSection
from qccf.settings.devices import DeviceSection, DevicesSection, scenario_fleet
from qccf.settings.radio import CellSection, RadioSection, linear_radio
from qccf.settings.sections import Section, file_key, key, option_sections
from qccf.wireless.radio import Radio

PAPERS_CODEC = "model"
RECORDINGS = ("femnist", "cifar10", "quick", "iot")
"""Recordings of real training that come with the package."""
BUNDLED_TRACES = ("growing-weights", "emnist")
"""Traces of statistics that come with the package."""
DEFAULT_CODEC = "update+entropy"
"""It uses the least energy at the same accuracy; see `docs/results.md`."""


class FederationSection(Section):
    """The federation."""

    num_clients: int = key(10, "number of clients", ge=1, le=100_000)
    rounds: int = key(100, "number of rounds", ge=1, le=1_000_000)
    seed: int = key(0, "seed of every random stream", ge=0, le=2**32 - 1)


class DataSection(Section):
    """The data and its partition. Dataset sizes are normal with mean μ and standard deviation β, cut at a minimum."""

    dataset: str = key("handwriting", "dataset to train on: a name of `qccf data list`, or your own as module:callable")
    options: dict[str, Any] = key({}, "options passed to a dataset of your own")
    transform: list[str] = key([], "what is done to a batch, in this order: standardise, flip, crop, affine")
    fallbacks: list[str] = key([], "datasets to use, in this order, where `dataset` is not available")
    partition: Literal["writer", "dirichlet", "iid"] = key("dirichlet", "how samples are dealt to clients")
    dirichlet_alpha: float = key(0.5, "concentration of the label mixture per client (dirichlet)", gt=0, le=1e6)
    dataset_size_mean: float = key(1200.0, "mean number of samples per client, μ", ge=1, le=1e8)
    dataset_size_std: float = key(150.0, "standard deviation of that number, β", ge=0, le=1e8)
    dataset_size_min: int = key(100, "least number of samples per client", ge=1, le=100_000_000)

    @model_validator(mode="after")
    def _mean_above_minimum(self) -> "DataSection":
        if self.dataset_size_mean < self.dataset_size_min:
            raise ValueError(
                f"dataset_size_mean = {self.dataset_size_mean:g} is below dataset_size_min = {self.dataset_size_min}: "
                "raise the mean or lower the minimum"
            )
        return self


class AccountsSection(Section):
    """What is charged besides computing and uploading. All of it is 0, as in the paper, unless it is set.

    Coding takes time and energy of the CPU, so it counts for the deadline. The deadline starts when the global model
    has arrived, and ends for everybody with the last participant of the round.
    """

    coding_cycles_per_parameter: float = key(
        0.0, "CPU cycles of encoding an upload and forecasting the next; `benchmarks/codec.py` measures", ge=0, le=1e6
    )
    receive_power_w: float = key(0.0, "power of a participant's receiver while the global model arrives", ge=0, le=100)
    receive_rate_bps: float = key(1e8, "rate of the broadcast of the global model, 32 bits per value", ge=1e3, le=1e12)
    idle_power_w: Literal["device"] | Annotated[float, Field(ge=0, le=100)] = key(
        0.0,
        'power of a participant at rest, charged for its whole round besides computing and sending; "device" is that '
        "of its profile",
    )

    @property
    def charged(self) -> str:
        """What the energy of a run contains, in words."""
        optional = {
            "coding": self.coding_cycles_per_parameter,
            "receiving": self.receive_power_w,
            "resting": self.idle_power_w,
        }
        return ", ".join(["computing", "uploading", *(name for name, charge in optional.items() if charge)])


class LearningSection(Section):
    """The model and its local training."""

    model: str = key("femnist-cnn", "model: femnist-cnn, cifar10-cnn, small-cnn, or your own as module:callable")
    model_options: dict[str, Any] = key({}, "options passed to the model")
    num_parameters: int = key(
        0,
        "number of model parameters, Z, to plan without torch; 0 counts them in the model, and training always does",
        ge=0,
        le=10**12,
    )
    flops_per_sample: float = key(
        0.0,
        'floating-point operations of training on one sample where cycles_per_sample = "auto"; 0 counts them in the '
        "model",
        ge=0,
        le=1e18,
    )
    num_buffers: int = key(
        0, "number of buffer values that are sent with the parameters; counted with them", ge=0, le=10**12
    )
    local_updates: int = key(
        6, "local SGD steps per round, τ, the same for every client; 0 if batch_size states them", ge=0, le=10_000
    )
    batch_size: int = key(
        0,
        "samples per local step: an epoch has as many steps as batches, and the last may be smaller; 0 if "
        "local_updates states the steps",
        ge=0,
        le=1_000_000,
    )
    local_epochs: int = key(2, "local epochs per round, τ_e", ge=1, le=10_000)
    learning_rate: float = key(0.1, "learning rate, η", gt=0, le=10)
    decay: float = key(1.0, "factor of the learning rate from one round to the next; 1 keeps it", gt=0, le=1)
    loss: str = key("cross-entropy", "loss: cross-entropy, or your own as module:callable")
    loss_options: dict[str, Any] = key({}, "options passed to the loss, such as label_smoothing of cross-entropy")
    logit_adjustment: Literal[False, True, "dataset"] = key(
        False,
        "clients correct their scores in training for how often they have each class; they must know how often all "
        'clients together have it, or, for "dataset", how often the whole training part of the dataset has it',
    )
    adjustment_strength: float = key(
        1.0, "share of the difference from the classes of all clients that logit_adjustment corrects", ge=0, le=1
    )
    optimizer: str = key("sgd", "local optimizer, fresh in each round: sgd, adamw, or your own as module:callable")
    momentum: float = key(0.0, "momentum of sgd", ge=0, lt=1)
    weight_decay: float = key(0.0, "weight decay of the local optimizer", ge=0, le=10)
    smoothness: float = key(0.015, "smoothness constant of the loss, L", gt=0, le=1e6)

    @model_validator(mode="before")
    @classmethod
    def _default_steps(cls, values: Any) -> Any:
        """A batch size takes the place of the default number of steps."""
        if isinstance(values, dict) and values.get("batch_size"):
            return {"local_updates": 0, **values}
        return values

    @model_validator(mode="after")
    def _one_count_of_steps(self) -> "LearningSection":
        if (self.local_updates > 0) == (self.batch_size > 0):
            raise ValueError(
                f"local_updates = {self.local_updates} and batch_size = {self.batch_size}: exactly one of them states "
                "the local steps, and the other is 0"
            )
        if self.local_updates and self.local_updates < self.local_epochs:
            raise ValueError(
                f"local_updates = {self.local_updates} is below local_epochs = {self.local_epochs}: each epoch needs "
                "at least one update"
            )
        return self

    def steps(self, num_samples: float) -> int:
        """τ of a client with this many samples."""
        return sum(
            steps_per_epoch(
                math.ceil(num_samples),
                local_updates=self.local_updates,
                local_epochs=self.local_epochs,
                batch_size=self.batch_size,
            )
        )


class CodecSection(Section):
    """How uploads are coded."""

    name: str = key(DEFAULT_CODEC, "codec: a name listed in docs/codecs.md, or your own as module:Class")
    options: dict[str, Any] = key({}, "options passed to the codec")
    safety_margin: float = key(
        0.05, "share added to forecast sizes where the size of an upload depends on the data", ge=0, le=10
    )


class PolicySection(Section):
    """Which policy runs."""

    name: str = key("qccf", "policy: one of the five, or your own as module:Class")
    label: str = key("", "a word before the policy's name in results, to tell runs of one policy apart")
    options: dict[str, Any] = key({}, "options passed to a policy of your own")


class StatisticsSection(Section):
    """Statistics used instead of training in `qccf plan`: recorded, constant, or a trace file (see `docs/plan.md`)."""

    model: Literal["recorded", "constant", "trace"] = key("recorded", "where the statistics come from")
    gradient_norm_sq: float = key(1.0, "squared norm of the gradient, G²", gt=0, le=1e12)
    gradient_variance: float = key(1.0, "variance of mini-batch gradients, σ²", ge=0, le=1e12)
    weight_range: float = key(0.4, "largest absolute weight, θ_max", gt=0, le=1e6)
    loss: float = key(1.0, "local loss", ge=0, le=1e6)
    trace: str = file_key(
        "",
        "CSV file or bundled trace; with `recorded`: femnist, cifar10, quick or iot, empty for the one of the model",
        names=(*RECORDINGS, *BUNDLED_TRACES),
    )

    @model_validator(mode="after")
    def _trace_named(self) -> "StatisticsSection":
        if self.model == "trace" and not self.trace:
            raise ValueError('trace = "" names no file, but model = "trace" needs one: give a CSV path')
        if self.model == "constant" and self.trace:
            raise ValueError(f'trace = "{self.trace}" is not used by model = "constant": set model = "trace"')
        if self.model == "recorded" and self.trace not in ("", *RECORDINGS):
            raise ValueError(
                f'trace = "{self.trace}" is not a recording ({", ".join(RECORDINGS)}): for a file set model = "trace"'
            )
        return self


class EvaluationSection(Section):
    """When and on how many samples the global model is tested, and whether a run stops at an accuracy."""

    samples: int = key(1000, "test samples per evaluation; the last evaluation uses all", ge=1, le=10_000_000)
    every: int = key(1, "rounds between evaluations", ge=1, le=1_000_000)
    averaged: int = key(
        3, "evaluations whose mean must reach an accuracy, so that one lucky round does not count", ge=1, le=1000
    )
    until_accuracy: float = key(0.0, "accuracy at which a run stops; 0 runs all rounds", ge=0, lt=1)


class ExecutionSection(Section):
    """How a run is computed. Only the precision and the device can change results."""

    workers: int = key(0, "threads that train clients; 0 uses every core", ge=0, le=1024)
    device: Literal["auto", "cpu", "cuda"] = key("auto", "where training runs; auto uses a GPU if there is one")
    precision: Literal["auto", "fp32", "bf16"] = key("auto", "auto: fp32 on a CPU, bf16 on a GPU that multiplies it")
    checkpoint_every: int = key(1, "rounds between checkpoints", ge=1, le=1_000_000)


class _Base(Section):
    federation: FederationSection = FederationSection()
    data: DataSection = DataSection()
    cell: CellSection = CellSection()
    radio: RadioSection = RadioSection()
    device: DeviceSection = DeviceSection()
    devices: DevicesSection = DevicesSection()
    accounts: AccountsSection = AccountsSection()
    learning: LearningSection = LearningSection()
    policy: PolicySection = PolicySection()
    codec: CodecSection = CodecSection()
    statistics: StatisticsSection = StatisticsSection()
    claims: ClaimsSection = ClaimsSection()
    evaluation: EvaluationSection = EvaluationSection()
    execution: ExecutionSection = ExecutionSection()
    privacy: PrivacySection = PrivacySection()

    @model_validator(mode="after")
    def _attackers_exist(self) -> "_Base":
        attack: Any = getattr(self, "attack")  # noqa: B009
        count = self.federation.num_clients
        if isinstance(attack.clients, list):
            unknown = [client for client in attack.clients if not 0 <= client < count]
            if unknown:
                raise ValueError(f"attack.clients names client {unknown[0]}, but there are clients 0 to {count - 1}")
        elif attack.kind != "none" and not 0 <= attack.clients <= count:
            raise ValueError(f"attack.clients = {attack.clients}, but federation.num_clients = {count}: take fewer")
        return self

    @model_validator(mode="after")
    def _everybody_has_a_position(self) -> "_Base":
        given, needed = len(self.cell.positions_m), self.federation.num_clients
        if given not in (0, needed):
            raise ValueError(
                f"cell.positions_m has {given} positions, but federation.num_clients = {needed}: give one for each "
                "client, or none"
            )
        return self

    @model_validator(mode="after")
    def _every_size_is_announced(self) -> "_Base":
        given, needed = len(self.claims.dataset_sizes), self.federation.num_clients
        if given not in (0, needed):
            raise ValueError(
                f"claims.dataset_sizes has {given} sizes, but federation.num_clients = {needed}: give one for each "
                "client, or none"
            )
        return self

    @model_validator(mode="after")
    def _bound_applies(self) -> "_Base":
        """The paper's form uses the theorem's constants; the default form does not depend on L."""
        control: Any = getattr(self, "control")  # noqa: B009
        if control.form != "paper":
            return self
        if self.learning.decay < 1.0:
            raise ValueError(
                f'learning.decay = {self.learning.decay:g} contradicts control.form = "paper", whose bound is for one '
                'learning rate: use decay = 1, or form = "scale-free"'
            )
        bound.require_valid_bound(
            learning_rate=self.learning.learning_rate,
            smoothness=self.learning.smoothness,
            local_updates=self.learning.steps(self.data.dataset_size_mean),
        )
        return self

    @model_validator(mode="after")
    def _class_shares_are_private(self) -> "_Base":
        """How often all data have each class is counted without noise, which no ε would account for."""
        if not self.learning.logit_adjustment and self.learning.adjustment_strength != 1.0:
            raise ValueError(
                f"learning.adjustment_strength = {self.learning.adjustment_strength:g} has no effect without "
                'learning.logit_adjustment: set it to true or "dataset", or leave the strength out'
            )
        if self.learning.logit_adjustment is True and self.learning.adjustment_strength == 0.0:
            raise ValueError(
                "learning.adjustment_strength = 0 corrects nothing: raise it, or set learning.logit_adjustment = false"
            )
        if self.learning.logit_adjustment and self.privacy.noise_multiplier:
            raise ValueError(
                f"learning.logit_adjustment = {json.dumps(self.learning.logit_adjustment)} contradicts "
                f"privacy.noise_multiplier = {self.privacy.noise_multiplier:g}, because clients tell how often they "
                "have each class: leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _absent_classes_keep_their_scores(self) -> "_Base":
        """Smoothed labels give each class a share, for which a class that a client lacks would need a huge score."""
        learning = self.learning
        smoothing = learning.loss_options.get("label_smoothing") if learning.loss == "cross-entropy" else None
        if smoothing and learning.logit_adjustment and learning.adjustment_strength == 1.0:
            raise ValueError(
                f"learning.loss_options.label_smoothing = {smoothing} contradicts learning.logit_adjustment = "
                f"{json.dumps(learning.logit_adjustment)}, because a client would raise the scores of classes that it "
                "does not have: set label_smoothing = 0, or learning.adjustment_strength below 1"
            )
        return self

    @model_validator(mode="after")
    def _one_source_of_interference(self) -> "_Base":
        """A trace holds what its channels were, so neither path loss nor neighbours add to it."""
        others = {"radio.trace": self.radio.trace, "radio.interference_margin_db": self.radio.interference_margin_db}
        for name, value in others.items():
            if self.cell.neighbours and value:
                raise ValueError(
                    f"cell.neighbours = {self.cell.neighbours} contradicts {name} = {value!r}, which states the "
                    "interference as well: leave one of them out"
                )
        return self

    @model_validator(mode="after")
    def _blocks_fit_below_the_carrier(self) -> "_Base":
        total_hz = self.radio.num_channels * self.radio.bandwidth_hz
        if self.radio.resource_blocks and total_hz > self.cell.carrier_hz:
            raise ValueError(
                f"radio.num_channels = {self.radio.num_channels} of radio.resource_blocks = "
                f"{self.radio.resource_blocks} are {total_hz:.3g} Hz, more than cell.carrier_hz = "
                f"{self.cell.carrier_hz:g}: take fewer channels or blocks; one carrier has at most 275 blocks"
            )
        return self

    @model_validator(mode="after")
    def _power_needs_shannon(self) -> "_Base":
        """How the rate falls with the power is known for Shannon's formula only."""
        control: Any = getattr(self, "control")  # noqa: B009
        if control.power == "adapted" and (self.radio.rate != "shannon" or self.radio.trace):
            other = f"radio.rate = {self.radio.rate!r}" if self.radio.rate != "shannon" else "radio.trace"
            raise ValueError(f'control.power = "adapted" needs Shannon\'s rates, not {other}: use power = "fixed"')
        return self

    def replaced(self, **sections: dict[str, Any]) -> "Scenario":
        """A copy with other values in some sections: `replaced(codec={"name": "model"})`."""
        changed = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=changed)  # type: ignore[return-value]

    @property
    def energy_weight(self) -> float:
        """The energy weight of the form that runs: V of the paper's form."""
        control: Any = getattr(self, "control")  # noqa: B009
        return float(control.paper.energy_weight if control.form == "paper" else control.energy_weight)

    @property
    def weight_label(self) -> str:
        """The energy weight as figures and logs name it."""
        control: Any = getattr(self, "control")  # noqa: B009
        return f"{'V' if control.form == 'paper' else 'energy weight'} {self.energy_weight:g}"

    def fleet(self, seed: int | None = None) -> Fleet:
        """The clients' devices in the world of a seed, by default that of the settings."""
        return scenario_fleet(self, self.federation.seed if seed is None else seed)  # type: ignore[arg-type]

    def constants(self, seed: int | None = None) -> Constants:
        """The constants of the decision core, with a number for each client where devices differ in this world.

        An ε1 that is "auto" is 0 until the policy has measured it.
        """
        paper: Any = getattr(self, "control").paper  # noqa: B009
        devices = dict(self.fleet(seed).constants)
        if self.accounts.idle_power_w != "device":
            devices["idle_power_w"] = self.accounts.idle_power_w
        constants = Constants(
            **devices,
            num_parameters=self.learning.num_parameters,
            deadline_s=self.device.deadline_s,
            local_updates=self.learning.steps(self.data.dataset_size_mean),
            local_epochs=self.learning.local_epochs,
            learning_rate=self.learning.learning_rate,
            smoothness=self.learning.smoothness,
            energy_weight=paper.energy_weight,
            data_budget=0.0 if paper.data_budget == "auto" else paper.data_budget,
            quantization_budget=paper.quantization_budget,
            num_buffers=self.learning.num_buffers,
            bandwidth_hz=self.radio.bandwidth_hz,
            transmit_power_min_w=np.minimum(self.radio.transmit_power_min_w, devices["transmit_power_w"]),
            coding_cycles=self.accounts.coding_cycles_per_parameter * self.learning.num_parameters,
            receive_energy_j=self._receive_energy_j(),
            batch_size=self.learning.batch_size,
        )
        rests = bool(np.any(np.asarray(constants.idle_power_w) > 0.0))
        return with_radio_power(constants, self.radio.radio_power(), rests=rests)

    def _receive_energy_j(self) -> float:
        """Energy of receiving the global model as 32-bit floats."""
        values = self.learning.num_parameters + self.learning.num_buffers
        return self.accounts.receive_power_w * 32.0 * values / self.accounts.receive_rate_bps

    def radio_link(self, seed: int | None = None) -> Radio:
        """The cell's radio in linear units, with the transmit powers of the clients' devices."""
        return replace(
            linear_radio(self.cell, self.radio), transmit_power_w=self.fleet(seed).constants["transmit_power_w"]
        )


if TYPE_CHECKING:

    class Scenario(_Base):
        control: Any
        principle: Any
        no_quantization: Any
        server: Any
        aggregation: Any
        attack: Any

else:
    Scenario = create_model(
        "Scenario",
        __base__=_Base,
        __module__=__name__,
        __doc__="Everything that defines a run: the sections above, and one section per policy that has options.",
        server=(ServerSection, ServerSection()),
        aggregation=(AggregationSection, AggregationSection()),
        attack=(AttackSection, AttackSection()),
        **dict(option_sections(POLICIES)),
    )
