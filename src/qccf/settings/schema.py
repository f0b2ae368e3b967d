"""The sections of the settings and their limits.

Every physical key carries its unit. Limits are wide enough for any sensible cell and narrow enough that a wrong unit
(MHz for Hz, dBm for W, ms for s) falls outside.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qccf.control import bound
from qccf.core.contracts import Constants
from qccf.core.units import dbm_to_w
from qccf.wireless.cell import Radio, Sight
from qccf.wireless.path_loss import PathLossModel

MAX_DEADLINE_S = 86_400.0
MAX_GAIN_DB = 100.0
PAPERS_CODEC = "model"
DEFAULT_CODEC = "update+entropy"
"""The one that spends least at the same accuracy; see `docs/results.md`."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class FederationSection(Section):
    """Who learns, for how long."""

    num_clients: int = Field(10, ge=1, le=100_000)
    rounds: int = Field(100, ge=1, le=1_000_000)
    seed: int = Field(0, ge=0, le=2**32 - 1)


class DataSection(Section):
    """The data and who holds it. Dataset sizes are normal with mean μ and standard deviation β, cut at a minimum."""

    dataset: str = "handwriting"
    partition: Literal["writer", "dirichlet", "iid"] = "dirichlet"
    dirichlet_alpha: float = Field(0.5, gt=0, le=1e6)
    dataset_size_mean: float = Field(1200.0, ge=1, le=1e8)
    dataset_size_std: float = Field(150.0, ge=0, le=1e8)
    dataset_size_min: int = Field(100, ge=1, le=100_000_000)

    @model_validator(mode="after")
    def _mean_above_minimum(self) -> "DataSection":
        if self.dataset_size_mean < self.dataset_size_min:
            raise ValueError(
                f"dataset_size_mean = {self.dataset_size_mean:g} is below dataset_size_min = {self.dataset_size_min}: "
                "raise the mean or lower the minimum"
            )
        return self


class CellSection(Section):
    """Where clients stand, and how waves reach them from there."""

    radius_m: float = Field(500.0, ge=10, le=5000)
    distance_min_m: float = Field(10.0, ge=10, le=5000)
    scenario: PathLossModel = "umi"
    line_of_sight: Sight = "always"
    shadowing: bool = False
    carrier_hz: float = Field(2.4e9, ge=0.5e9, le=100e9)
    base_height_m: float = Field(10.0, ge=2, le=200)
    client_height_m: float = Field(1.5, ge=1.2, le=22.5)

    @model_validator(mode="after")
    def _ring(self) -> "CellSection":
        if self.distance_min_m >= self.radius_m:
            raise ValueError(
                f"distance_min_m = {self.distance_min_m:g} leaves no room inside radius_m = {self.radius_m:g}: "
                "lower the distance or raise the radius"
            )
        return self


class RadioSection(Section):
    """The uplink. `gain_db` is h_Gain; `fading_mean_power` is ζ."""

    num_channels: int = Field(10, ge=1, le=100_000)
    bandwidth_hz: float = Field(10e6, ge=1e3, le=10e9)
    transmit_power_w: float = Field(0.2, ge=1e-6, le=10)
    noise_dbm_per_hz: float = Field(-174.0, ge=-210, le=-90)
    gain_db: float = Field(0.0, ge=-100, le=MAX_GAIN_DB)
    rician_k: float = Field(4.0, ge=0, le=1e4)
    fading_mean_power: float = Field(1.0, gt=0, le=1e4)


class DeviceSection(Section):
    """The clients' processors and the deadline that they work against."""

    deadline_s: float = Field(0.02, ge=1e-5, le=MAX_DEADLINE_S)
    cycles_per_sample: float = Field(1000.0, ge=1, le=1e12)
    energy_coefficient: float = Field(1e-26, ge=1e-32, le=1e-18)
    frequency_min_hz: float = Field(2e8, ge=1e6, le=1e11)
    frequency_max_hz: float = Field(1e9, ge=1e6, le=1e11)

    @model_validator(mode="after")
    def _range(self) -> "DeviceSection":
        if self.frequency_min_hz > self.frequency_max_hz:
            raise ValueError(
                f"frequency_min_hz = {self.frequency_min_hz:g} is above frequency_max_hz = {self.frequency_max_hz:g}: "
                "swap them"
            )
        return self


class LearningSection(Section):
    """The model and its local training. `smoothness` is L."""

    model: str = "femnist-cnn"
    num_parameters: int = Field(246_590, ge=1, le=10**12)
    local_updates: int = Field(6, ge=1, le=10_000)
    local_epochs: int = Field(2, ge=1, le=10_000)
    learning_rate: float = Field(0.1, gt=0, le=10)
    smoothness: float = Field(0.015, gt=0, le=1e6)

    @model_validator(mode="after")
    def _whole_epochs(self) -> "LearningSection":
        if self.local_updates % self.local_epochs:
            raise ValueError(
                f"local_updates = {self.local_updates} is not a multiple of local_epochs = {self.local_epochs}: "
                "each epoch must have the same number of updates"
            )
        return self


class GeneticSection(Section):
    """Algorithm 1; `elitism` 0 is the paper's."""

    population: int = Field(50, ge=2, le=100_000)
    generations: int = Field(50, ge=1, le=100_000)
    crossover_probability: float = Field(0.9, ge=0, le=1)
    mutation_probability: float = Field(0.05, ge=0, le=1)
    fitness_exponent: float = Field(1.0, gt=0, le=100)
    elitism: int = Field(0, ge=0, le=100_000)

    @model_validator(mode="after")
    def _some_change(self) -> "GeneticSection":
        if self.elitism >= self.population:
            raise ValueError(
                f"elitism = {self.elitism} leaves no room for children in population = {self.population}: lower it"
            )
        return self


class ControlSection(Section):
    """QCCF's own settings: V, ε1, ε2, the warm start, and the solvers. ε1 is measured when it is "auto"."""

    energy_weight: float = Field(100.0, ge=1e-9, le=1e12)
    data_budget: Literal["auto"] | Annotated[float, Field(ge=0, le=1e15)] = "auto"
    quantization_budget: float = Field(0.03, ge=0, le=1e9)
    participation_margin: float = Field(0.01, gt=0, le=1e3)
    quantization_margin: float = Field(0.5, gt=0, le=1e6)
    solver: Literal["assignment", "genetic", "exhaustive"] = "assignment"
    inner: Literal["exact", "closed-form", "closed-form-taylor", "printed"] = "exact"
    genetic: GeneticSection = GeneticSection()


class PrincipleSection(Section):
    """DAdaQuant: ψ, φ (a tenth of the rounds when 0), the first level, and what the rule counts."""

    smoothing: float = Field(0.9, ge=0, lt=1)
    patience: int = Field(0, ge=0, le=1_000_000)
    initial_bits: int = Field(3, ge=1, le=16)
    unit: Literal["bits", "intervals"] = "bits"

    @model_validator(mode="after")
    def _compares_two_rounds(self) -> "PrincipleSection":
        if self.patience == 1:
            raise ValueError(
                "patience = 1 compares a round with itself: give 2 or more, or 0 for a tenth of the rounds"
            )
        return self


class NoQuantizationSection(Section):
    enforce_deadline: bool = False


class CodecSection(Section):
    """How uploads are coded: a name from the table, or `module:Class`, with `options` passed to it.

    Where sizes depend on the data, decisions allow for `safety_margin` more than the forecast.
    """

    name: str = DEFAULT_CODEC
    options: dict[str, Any] = {}
    safety_margin: float = Field(0.05, ge=0, le=10)


class PolicySection(Section):
    """Which policy runs: a name from the table, or `module:Class` with `options` passed to it."""

    name: str = "qccf"
    options: dict[str, Any] = {}


class StatisticsSection(Section):
    """What stands in for training in `qccf plan`: constants, or a trace file (see `docs/plan.md`)."""

    model: Literal["constant", "trace"] = "constant"
    gradient_norm_sq: float = Field(1.0, gt=0, le=1e12)
    gradient_variance: float = Field(1.0, ge=0, le=1e12)
    weight_range: float = Field(0.4, gt=0, le=1e6)
    loss: float = Field(1.0, ge=0, le=1e6)
    trace: str = ""

    @model_validator(mode="after")
    def _trace_named(self) -> "StatisticsSection":
        if self.model == "trace" and not self.trace:
            raise ValueError('trace = "" names no file, but model = "trace" needs one: give a CSV path')
        if self.model == "constant" and self.trace:
            raise ValueError(f'trace = "{self.trace}" is not used by model = "constant": set model = "trace"')
        return self


class EvaluationSection(Section):
    """Test accuracy: on so many test samples each round, on all of them at the end."""

    samples: int = Field(1000, ge=1, le=10_000_000)
    every: int = Field(1, ge=1, le=1_000_000)


class ExecutionSection(Section):
    """How a run is computed; nothing here changes its results but the precision. `workers` 0 takes every core."""

    workers: int = Field(0, ge=0, le=1024)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    checkpoint_every: int = Field(1, ge=1, le=1_000_000)


class Scenario(Section):
    """Everything that defines a run."""

    federation: FederationSection = FederationSection()
    data: DataSection = DataSection()
    cell: CellSection = CellSection()
    radio: RadioSection = RadioSection()
    device: DeviceSection = DeviceSection()
    learning: LearningSection = LearningSection()
    control: ControlSection = ControlSection()
    principle: PrincipleSection = PrincipleSection()
    no_quantization: NoQuantizationSection = NoQuantizationSection()
    policy: PolicySection = PolicySection()
    codec: CodecSection = CodecSection()
    statistics: StatisticsSection = StatisticsSection()
    evaluation: EvaluationSection = EvaluationSection()
    execution: ExecutionSection = ExecutionSection()

    @model_validator(mode="after")
    def _bound_applies(self) -> "Scenario":
        bound.require_valid_bound(
            learning_rate=self.learning.learning_rate,
            smoothness=self.learning.smoothness,
            local_updates=self.learning.local_updates,
        )
        return self

    def with_codec(self, name: str) -> "Scenario":
        """The same scenario with another codec."""
        return self.model_copy(update={"codec": self.codec.model_copy(update={"name": name})})

    def with_policy(self, name: str) -> "Scenario":
        """The same scenario with another policy."""
        return self.model_copy(update={"policy": self.policy.model_copy(update={"name": name})})

    def with_seed(self, seed: int) -> "Scenario":
        """The same scenario with another seed."""
        return self.model_copy(update={"federation": self.federation.model_copy(update={"seed": seed})})

    def constants(self) -> Constants:
        """What the decision core works with; ε1 is 0 until it has been measured."""
        budget = self.control.data_budget
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
            energy_weight=self.control.energy_weight,
            data_budget=0.0 if budget == "auto" else budget,
            quantization_budget=self.control.quantization_budget,
        )

    def radio_link(self) -> Radio:
        """The cell's radio in linear units."""
        return Radio(
            num_channels=self.radio.num_channels,
            bandwidth_hz=self.radio.bandwidth_hz,
            transmit_power_w=self.radio.transmit_power_w,
            noise_w_per_hz=float(dbm_to_w(self.radio.noise_dbm_per_hz)),
            gain_db=self.radio.gain_db,
            scenario=self.cell.scenario,
            line_of_sight=self.cell.line_of_sight,
            shadowing=self.cell.shadowing,
            carrier_hz=self.cell.carrier_hz,
            base_height_m=self.cell.base_height_m,
            client_height_m=self.cell.client_height_m,
            rician_k=self.radio.rician_k,
            fading_mean_power=self.radio.fading_mean_power,
        )
