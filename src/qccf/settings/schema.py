"""The sections of the settings, with meaning, unit, default and limits of every key.

Every physical key carries its unit. Limits are wide enough for any sensible cell, and narrow enough that a wrong unit
(MHz for Hz, dBm for W, ms for s) falls outside. The options of policies come from the policies' own files.
"""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from qccf.control import bound
from qccf.core.contracts import Constants
from qccf.core.units import dbm_to_w
from qccf.policies.registry import POLICIES
from qccf.wireless.cell import LineOfSight, Radio

MAX_DEADLINE_S = 86_400.0
MAX_GAIN_DB = 100.0
PAPERS_CODEC = "model"
RECORDINGS = ("femnist", "cifar10", "quick")
"""Recordings of real training that come with the package."""
DEFAULT_CODEC = "update+entropy"
"""It uses the least energy at the same accuracy; see `docs/results.md`."""


def key(default: Any, description: str, **limits: Any) -> Any:
    """One key of a section."""
    return Field(default, description=description, **limits)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def section_model(name: str, options: type) -> type[Section]:
    """A section from an entry's options dataclass."""
    hints = get_type_hints(options)
    keys: dict[str, Any] = {}
    for one in fields(options):
        hint, default = hints[one.name], one.default
        if is_dataclass(hint):
            hint = section_model(f"{one.name.title()}Section", hint)  # type: ignore[arg-type]
            default = hint()
        limits = one.metadata.get("limits", {})
        if limits and get_origin(hint) is not None:  # limits hold for the number of `Literal["auto"] | float`
            kinds = get_args(hint)
            hint = kinds[0] | Annotated[kinds[1], Field(**limits)]
            limits = {}
        description = one.metadata.get("description", "")
        unit = {"unit": one.metadata.get("unit", "")}
        keys[one.name] = (hint, Field(default, description=description, json_schema_extra=unit, **limits))

    def check(self: Section) -> Section:
        options(**option_values(options, self))
        return self

    model = create_model(
        name,
        __base__=Section,
        __doc__=options.__doc__,
        __module__=__name__,
        __validators__={"check": model_validator(mode="after")(check)},  # type: ignore[dict-item]
        **keys,
    )
    globals()[name] = model  # pickle looks for it here
    return model


def option_values(options: type, section: Any) -> dict[str, Any]:
    """The values of an options dataclass that a section holds."""
    hints = get_type_hints(options)
    values = {one.name: getattr(section, one.name) for one in fields(options)}
    return {
        name: hints[name](**option_values(hints[name], value)) if is_dataclass(hints[name]) else value
        for name, value in values.items()
    }


class FederationSection(Section):
    """The federation."""

    num_clients: int = key(10, "number of clients", ge=1, le=100_000)
    rounds: int = key(100, "number of rounds", ge=1, le=1_000_000)
    seed: int = key(0, "seed of every random stream", ge=0, le=2**32 - 1)


class DataSection(Section):
    """The data and its partition. Dataset sizes are normal with mean μ and standard deviation β, cut at a minimum."""

    dataset: str = key("handwriting", "dataset to train on: a name of `qccf data list`, or your own as module:callable")
    options: dict[str, Any] = key({}, "options passed to a dataset of your own")
    transform: list[str] = key([], "what is done to a batch, in this order: standardise, flip, crop")
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


class CellSection(Section):
    """Positions of the clients, and path loss."""

    radius_m: float = key(500.0, "radius of the cell", ge=10, le=5000)
    distance_min_m: float = key(10.0, "least distance from the base station", ge=10, le=5000)
    positions_m: list[list[float]] = key(
        [], "position [x, y] of each client, with the base station at [0, 0]; empty draws them in every cell"
    )
    path_loss: str = key("umi", "path-loss model: umi, uma, log-distance, or your own as module:Class")
    line_of_sight: LineOfSight = key("always", "whether clients see the base station")
    shadowing: bool = key(False, "whether log-normal shadow fading is added")
    carrier_hz: float = key(2.4e9, "carrier frequency", ge=0.5e9, le=100e9)
    base_height_m: float = key(10.0, "height of the base station", ge=2, le=200)
    client_height_m: float = key(1.5, "height of the clients", ge=1.2, le=22.5)

    @model_validator(mode="after")
    def _ring(self) -> "CellSection":
        if self.distance_min_m >= self.radius_m:
            raise ValueError(
                f"distance_min_m = {self.distance_min_m:g} leaves no room inside radius_m = {self.radius_m:g}: "
                "lower the distance or raise the radius"
            )
        for client, position in enumerate(self.positions_m):
            if len(position) != 2:
                raise ValueError(f"positions_m[{client}] has {len(position)} numbers: give [x, y] in metres")
            if not self.distance_min_m * (1 - 1e-9) <= math.hypot(*position) <= self.radius_m * (1 + 1e-9):
                raise ValueError(
                    f"positions_m[{client}] is {math.hypot(*position):g} m from the base station, outside "
                    f"distance_min_m = {self.distance_min_m:g} to radius_m = {self.radius_m:g}: move the client"
                )
        return self


class RadioSection(Section):
    """The uplink."""

    num_channels: int = key(10, "number of OFDMA channels, C", ge=1, le=100_000)
    bandwidth_hz: float = key(10e6, "bandwidth of one channel, B", ge=1e3, le=10e9)
    transmit_power_w: float = key(0.2, "transmit power of a client, p", ge=1e-6, le=10)
    noise_dbm_per_hz: float = key(-174.0, "noise power density, N0", ge=-210, le=-90)
    gain_db: float = key(0.0, "antenna and other gain, h_Gain", ge=-100, le=MAX_GAIN_DB)
    rician_k: float = key(4.0, "Rician factor K (linear)", ge=0, le=1e4)
    fading_mean_power: float = key(1.0, "mean power of the fading, ζ", gt=0, le=1e4)


class DeviceSection(Section):
    """The clients' processors and the deadline of a round."""

    deadline_s: float = key(0.02, "deadline for training and uploading, T_max", ge=1e-5, le=MAX_DEADLINE_S)
    cycles_per_sample: float = key(1000.0, "CPU cycles per sample and epoch, γ", ge=1, le=1e12)
    energy_coefficient: float = key(1e-26, "energy per cycle and squared frequency, α", ge=1e-32, le=1e-18)
    frequency_min_hz: float = key(2e8, "lowest CPU frequency", ge=1e6, le=1e11)
    frequency_max_hz: float = key(1e9, "highest CPU frequency", ge=1e6, le=1e11)

    @model_validator(mode="after")
    def _range(self) -> "DeviceSection":
        if self.frequency_min_hz > self.frequency_max_hz:
            raise ValueError(
                f"frequency_min_hz = {self.frequency_min_hz:g} is above frequency_max_hz = {self.frequency_max_hz:g}: "
                "swap them"
            )
        return self


class LearningSection(Section):
    """The model and its local training."""

    model: str = key("femnist-cnn", "model to train: femnist-cnn, cifar10-cnn, or your own as module:callable")
    model_options: dict[str, Any] = key({}, "options passed to the model")
    num_parameters: int = key(
        0,
        "number of model parameters, Z, to plan without torch; 0 counts them in the model, and training always does",
        ge=0,
        le=10**12,
    )
    num_buffers: int = key(
        0, "number of buffer values that are sent with the parameters; counted with them", ge=0, le=10**12
    )
    local_updates: int = key(6, "local SGD steps per round, τ", ge=1, le=10_000)
    local_epochs: int = key(2, "local epochs per round, τ_e", ge=1, le=10_000)
    learning_rate: float = key(0.1, "learning rate, η", gt=0, le=10)
    loss: str = key("cross-entropy", "loss: cross-entropy, or your own as module:callable")
    loss_options: dict[str, Any] = key({}, "options passed to the loss, such as label_smoothing of cross-entropy")
    optimizer: str = key("sgd", "local optimizer, fresh in each round: sgd, adamw, or your own as module:callable")
    momentum: float = key(0.0, "momentum of sgd", ge=0, lt=1)
    weight_decay: float = key(0.0, "weight decay of the local optimizer", ge=0, le=10)
    smoothness: float = key(0.015, "smoothness constant of the loss, L", gt=0, le=1e6)

    @model_validator(mode="after")
    def _whole_epochs(self) -> "LearningSection":
        if self.local_updates % self.local_epochs:
            raise ValueError(
                f"local_updates = {self.local_updates} is not a multiple of local_epochs = {self.local_epochs}: "
                "each epoch must have the same number of updates"
            )
        return self


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
    options: dict[str, Any] = key({}, "options passed to a policy of your own")


class StatisticsSection(Section):
    """Statistics used instead of training in `qccf plan`: recorded, constant, or a trace file (see `docs/plan.md`)."""

    model: Literal["recorded", "constant", "trace"] = key("recorded", "where the statistics come from")
    gradient_norm_sq: float = key(1.0, "squared norm of the gradient, G²", gt=0, le=1e12)
    gradient_variance: float = key(1.0, "variance of mini-batch gradients, σ²", ge=0, le=1e12)
    weight_range: float = key(0.4, "largest absolute weight, θ_max", gt=0, le=1e6)
    loss: float = key(1.0, "local loss", ge=0, le=1e6)
    trace: str = key(
        "",
        "CSV file or bundled trace; with `recorded`: femnist, cifar10 or quick, empty for the one of the model",
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
    """When and on how many samples the global model is tested."""

    samples: int = key(1000, "test samples per evaluation; the last evaluation uses all", ge=1, le=10_000_000)
    every: int = key(1, "rounds between evaluations", ge=1, le=1_000_000)


class ExecutionSection(Section):
    """How a run is computed. Only the precision and the device can change results."""

    workers: int = key(0, "threads that train clients; 0 uses every core", ge=0, le=1024)
    device: Literal["auto", "cpu", "cuda"] = key("auto", "where training runs; auto uses a GPU if there is one")
    precision: Literal["auto", "fp32", "bf16"] = key("auto", "auto: fp32 on a CPU, bf16 on a GPU that multiplies it")
    checkpoint_every: int = key(1, "rounds between checkpoints", ge=1, le=1_000_000)


def _policy_sections() -> Iterator[tuple[str, Any]]:
    """One section per options dataclass of the policies."""
    for policy in POLICIES.values():
        section, options = getattr(policy, "section", ""), getattr(policy, "Options", None)
        if section and options is not None:
            model = section_model(f"{section.title().replace('_', '')}Section", options)
            yield section, (model, model())


class _Base(Section):
    federation: FederationSection = FederationSection()
    data: DataSection = DataSection()
    cell: CellSection = CellSection()
    radio: RadioSection = RadioSection()
    device: DeviceSection = DeviceSection()
    learning: LearningSection = LearningSection()
    policy: PolicySection = PolicySection()
    codec: CodecSection = CodecSection()
    statistics: StatisticsSection = StatisticsSection()
    evaluation: EvaluationSection = EvaluationSection()
    execution: ExecutionSection = ExecutionSection()

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
    def _bound_applies(self) -> "_Base":
        """The paper's form uses the theorem's constants; the default form does not depend on L."""
        control: Any = getattr(self, "control")  # noqa: B009
        if control.form != "paper":
            return self
        bound.require_valid_bound(
            learning_rate=self.learning.learning_rate,
            smoothness=self.learning.smoothness,
            local_updates=self.learning.local_updates,
        )
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

    def constants(self) -> Constants:
        """The constants of the decision core; an ε1 that is "auto" is 0 until the policy has measured it."""
        paper: Any = getattr(self, "control").paper  # noqa: B009
        return Constants(
            num_parameters=self.learning.num_parameters,
            deadline_s=self.device.deadline_s,
            cycles_per_sample=self.device.cycles_per_sample,
            energy_coefficient=self.device.energy_coefficient,
            transmit_power_w=self.radio.transmit_power_w,
            frequency_min_hz=self.device.frequency_min_hz,
            frequency_max_hz=self.device.frequency_max_hz,
            local_updates=self.learning.local_updates,
            local_epochs=self.learning.local_epochs,
            learning_rate=self.learning.learning_rate,
            smoothness=self.learning.smoothness,
            energy_weight=paper.energy_weight,
            data_budget=0.0 if paper.data_budget == "auto" else paper.data_budget,
            quantization_budget=paper.quantization_budget,
            num_buffers=self.learning.num_buffers,
        )

    def radio_link(self) -> Radio:
        """The cell's radio in linear units."""
        return Radio(
            num_channels=self.radio.num_channels,
            bandwidth_hz=self.radio.bandwidth_hz,
            transmit_power_w=self.radio.transmit_power_w,
            noise_w_per_hz=float(dbm_to_w(self.radio.noise_dbm_per_hz)),
            gain_db=self.radio.gain_db,
            path_loss=self.cell.path_loss,
            line_of_sight=self.cell.line_of_sight,
            shadowing=self.cell.shadowing,
            carrier_hz=self.cell.carrier_hz,
            base_height_m=self.cell.base_height_m,
            client_height_m=self.cell.client_height_m,
            rician_k=self.radio.rician_k,
            fading_mean_power=self.radio.fading_mean_power,
        )


if TYPE_CHECKING:

    class Scenario(_Base):
        control: Any
        principle: Any
        no_quantization: Any

else:
    Scenario = create_model(
        "Scenario",
        __base__=_Base,
        __module__=__name__,
        __doc__="Everything that defines a run: the sections above, and one section per policy that has options.",
        **dict(_policy_sections()),
    )
