"""A bank of seeded scenarios for decisions without training: cells, devices, codecs and gradients of many kinds.

`scenarios` draws them, `named_scenarios` lists settings that once went wrong, `BankSource` plays the clients.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray, Statistics
from qccf.core.errors import InfeasibleError
from qccf.core.streams import stream
from qccf.core.units import db_to_linear, linear_to_db
from qccf.learning.results import Flat, LocalStatistics
from qccf.quantization.protocol import Forecast
from qccf.quantization.registry import build_codec
from qccf.rounds.round import OpenRound, ServerState
from qccf.rounds.uplink import Upload
from qccf.rounds.world import World, build_world, draw_dataset_sizes
from qccf.settings.loading import read_settings, scenario_from_dict, with_settings
from qccf.settings.radio import MAX_GAIN_DB
from qccf.settings.schema import Scenario

ROUNDS = 200
SAMPLE_SIZE = 16_384
"""Values of the vectors whose forecast stands for the whole model."""

NUM_SHAPES = 4
PATH_LOSSES = ("umi", "uma", "log-distance", "inh", "inh-open")
INDOOR_RADIUS_MAX_M = 150.0
CODECS = (
    "model", "update", "block", "update+block",
    "model+entropy", "update+entropy", "block+entropy", "update+block+entropy",
    "sparse",
)  # fmt: skip
"""Not those of the registry: a seed must name the same scenarios when a codec is added."""
LENGTH_POWER = {"sparse": 0.5}
"""Errors per value grow with this power of the length of a vector, and bits per value fall with it; 0 for others."""

BANDWIDTH_MAX_HZ = 1e9
RATE_MIN_BPS, RATE_MAX_BPS = 1e5, 5e9


@dataclass(frozen=True, kw_only=True)
class ClientModel:
    """How the statistics of the clients develop over a run.

    G² starts at `gradient_norm_sq` and is `gradient_fall` times that at the end. σ² starts at `variance_ratio` times G²
    and falls with it or stays. The standard deviation of a weight starts at `weight_std` and ends at `weight_growth`
    times that. An update has `update_share` of the squared norm (ητ)²G². Vectors are Student-t distributed with `tail`
    degrees of freedom. `client_spread` is the standard deviation of the logarithm of the differences between clients,
    `size_noise` that of the size of an entropy-coded upload.
    """

    gradient_norm_sq: float = 1.0
    gradient_fall: float = 1.0
    variance_ratio: float = 1.0
    variance_falls: bool = False
    weight_std: float = 0.05
    weight_growth: float = 1.0
    update_share: float = 0.5
    tail: float = 5.0
    client_spread: float = 0.0
    size_noise: float = 0.01
    lognormal_sizes: bool = False


@dataclass(frozen=True)
class BankScenario:
    """One scenario: the settings as sections, and the model of its clients. `redraws` draws before it were refused."""

    name: str
    settings: dict[str, dict[str, Any]]
    clients: ClientModel
    redraws: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def scenario(self, changes: Mapping[str, Any] | None = None) -> Scenario:
        """The settings with other values at some `section.key`."""
        return scenario_from_dict(with_settings(self.settings, dict(changes or {})))

    def world(self) -> World:
        scenario = self.scenario()
        return build_world(scenario, scenario.federation.seed, _dataset_sizes(scenario, self.clients))


def _dataset_sizes(scenario: Scenario, clients: ClientModel) -> FloatArray:
    """Normal sizes as in the paper, or log-normal ones with the same mean and standard deviation."""
    if not clients.lognormal_sizes:
        return draw_dataset_sizes(scenario, scenario.federation.seed)
    data = scenario.data
    sigma_sq = np.log1p((data.dataset_size_std / data.dataset_size_mean) ** 2)
    rng = stream(scenario.federation.seed, "dataset-sizes")
    drawn = rng.lognormal(
        np.log(data.dataset_size_mean) - 0.5 * sigma_sq, np.sqrt(sigma_sq), scenario.federation.num_clients
    )
    return np.maximum(np.round(drawn), float(data.dataset_size_min))


@dataclass(frozen=True)
class Shape:
    """Forecast per value of a vector with mean square 1: errors and bits for each q, error scale and largest value."""

    errors: FloatArray
    bits: FloatArray | None
    error_scale: float
    largest: float


@lru_cache(maxsize=512)
def vector_shape(codec_name: str, tail: float, seed: int) -> Shape:
    """The codec's own forecast of a Student-t vector."""
    codec = build_codec(codec_name, SAMPLE_SIZE, [SAMPLE_SIZE])
    values = np.random.default_rng(seed).standard_t(tail, SAMPLE_SIZE)
    vector = (values / np.sqrt(np.mean(np.square(values)))).astype(np.float32)
    forecast = codec.forecast(vector)
    assert forecast.errors is not None
    bits = None if forecast.bits is None else np.maximum.accumulate(forecast.bits) / SAMPLE_SIZE
    return Shape(forecast.errors / SAMPLE_SIZE, bits, forecast.error_scale / SAMPLE_SIZE, float(np.abs(vector).max()))


@dataclass(frozen=True)
class ClientValues:
    """What all clients would measure in one round; sizes without a safety margin, None for affine codecs."""

    gradient_norms_sq: FloatArray
    gradient_variances: FloatArray
    weight_ranges: FloatArray
    error_scales: FloatArray
    errors: FloatArray
    bits: FloatArray | None
    losses: FloatArray


def stretch(codec_name: str, num_parameters: int) -> float:
    """How much longer than the sampled vector a model is, as far as errors and bits per value depend on it."""
    return float((num_parameters / SAMPLE_SIZE) ** LENGTH_POWER.get(codec_name, 0.0))


class BankSource:
    """Uploads without training: the statistics follow the client model, sizes and errors the codec's forecast."""

    def __init__(self, scenario: Scenario, clients: ClientModel, dataset_sizes: FloatArray) -> None:
        self._scenario, self._clients, self._sizes = scenario, clients, dataset_sizes
        self._seed = scenario.federation.seed
        count = len(dataset_sizes)
        rng = stream(self._seed, "bank-clients")
        self._gradients = np.exp(clients.client_spread * rng.standard_normal(count))
        self._variances = np.exp(clients.client_spread * rng.standard_normal(count))
        self._weights = np.exp(0.1 * clients.client_spread * rng.standard_normal(count))
        name = scenario.codec.name
        self._relative = build_codec(name, 2, [2]).relative
        self._stretch = stretch(name, scenario.learning.num_parameters)
        shapes = [vector_shape(name, clients.tail, seed) for seed in range(NUM_SHAPES)]
        self._shapes = [shapes[k] for k in rng.integers(0, NUM_SHAPES, count)]

    def values(self, round_index: int) -> ClientValues:
        """The values of a round for all clients."""
        s, c = self._scenario, self._clients
        progress = min(round_index / max(s.federation.rounds - 1, 1), 1.0)
        fall = c.gradient_fall**progress
        norms_sq = c.gradient_norm_sq * fall * self._gradients
        variances = c.gradient_norm_sq * c.variance_ratio * (fall if c.variance_falls else 1.0) * self._variances
        weight_stds = c.weight_std * c.weight_growth**progress * self._weights
        count = s.learning.num_parameters
        step = s.learning.learning_rate * s.learning.local_updates
        update_stds = step * np.sqrt(c.update_share * norms_sq / count)
        squares = np.square(update_stds if self._relative else weight_stds)
        noise = stream(self._seed, "bank-noise", round_index).standard_normal((2, len(self._sizes)))
        sizes_per_value = [shape.bits for shape in self._shapes if shape.bits is not None]
        bits = None
        if sizes_per_value:
            bits = count / self._stretch * np.array(sizes_per_value) * np.exp(c.size_noise * noise[0])[:, None]
        return ClientValues(
            gradient_norms_sq=norms_sq,
            gradient_variances=variances,
            weight_ranges=weight_stds * np.array([shape.largest for shape in self._shapes]),
            error_scales=count * squares * self._stretch**2 * np.array([shape.error_scale for shape in self._shapes]),
            errors=count * squares[:, None] * self._stretch * np.array([shape.errors for shape in self._shapes]),
            bits=bits,
            losses=(0.3 + 3.0 * np.sqrt(fall)) * np.exp(0.02 * noise[1]),
        )

    def initial_statistics(self) -> Statistics:
        now = self.values(0)
        margin = 1.0 + self._scenario.codec.safety_margin
        return Statistics(
            dataset_sizes=self._sizes,
            gradient_norms_sq=now.gradient_norms_sq,
            gradient_variances=now.gradient_variances,
            weight_ranges=now.weight_ranges,
            error_scales=now.error_scales,
            upload_bits=None if now.bits is None else now.bits * margin,
            upload_errors=now.errors,
        )

    def uploads(self, state: ServerState, opened: OpenRound) -> Mapping[int, Upload]:
        now = self.values(state.round_index)
        return {int(i): self._upload(now, opened, int(i)) for i in np.flatnonzero(opened.to_train)}

    def _upload(self, now: ClientValues, opened: OpenRound, client: int) -> Upload:
        size_bits = np.nan
        if now.bits is not None and not opened.decision.raw:
            size_bits = float(now.bits[client, opened.decision.num_bits[client] - 1])
        statistics = LocalStatistics(
            float(now.gradient_norms_sq[client]),
            float(now.gradient_variances[client]),
            float(now.weight_ranges[client]),
            float(now.losses[client]),
        )
        bits = None if now.bits is None else now.bits[client]
        forecast = Forecast(float(now.error_scales[client]), bits, now.errors[client])
        return Upload(None, size_bits, statistics, forecast)

    def evaluate(self, weights: Flat | None, round_index: int) -> tuple[float, float]:
        return np.nan, np.nan


def named_scenarios() -> Iterator[BankScenario]:
    """The settings with which the paper's form of the controller goes wrong, with the paper's and the default codec."""
    falling = ClientModel(gradient_fall=1e-3)
    rows: dict[str, tuple[dict[str, Any], ClientModel]] = {
        "default": ({}, ClientModel()),
        "growing-weights": ({}, ClientModel(weight_std=0.02, weight_growth=3.0)),
        "tiny-gradient": ({}, ClientModel(gradient_norm_sq=1e-4, variance_ratio=1e4)),
        "falling-gradient": ({}, falling),
        "smoothness-1": (
            {"learning.smoothness": 1.0, "radio.bandwidth_hz": 4e6, "radio.gain_db": 20.0},
            ClientModel(),
        ),
        "50-clients-20-channels": ({"federation.num_clients": 50, "radio.num_channels": 20}, ClientModel()),
        "10-clients-5-channels": ({"radio.num_channels": 5}, ClientModel()),
        "10-clients-3-channels": ({"radio.num_channels": 3}, falling),
        "11-million": (
            {"learning.num_parameters": 11_000_000, "device.cycles_per_sample": 1e7, "device.deadline_s": 60.0},
            ClientModel(),
        ),
        "cifar10": ({}, falling),
    }
    for codec in ("model", "update+entropy"):
        for name, (changes, clients) in rows.items():
            base = read_settings("cifar10" if name == "cifar10" else "femnist")
            common = {"federation.rounds": ROUNDS, "codec.name": codec, "federation.seed": 0}
            yield BankScenario(f"{name}/{codec}", with_settings(base, common | changes), clients)


def scenarios(seed: int, count: int) -> Iterator[BankScenario]:
    """`count` drawn scenarios. A draw in which no client can ever upload is refused and drawn again."""
    for number in range(count):
        for attempt in range(100):
            drawn = _draw(stream(seed, "bank", number, attempt), number)
            one = replace(drawn, name=f"{seed}-{number:03d}", redraws=attempt)
            try:
                one.world()
            except InfeasibleError:
                continue
            yield one
            break
        else:
            raise RuntimeError(f"scenario {seed}-{number} was refused 100 times; widen the draw")


def _draw(rng: np.random.Generator, number: int) -> BankScenario:
    """One draw. Codecs and path losses take turns, so that every pair of them occurs."""
    codec = CODECS[number % len(CODECS)]
    clients = _draw_clients(rng)
    num_clients = round(_log_uniform(rng, 2, 200))
    shape = vector_shape(codec, clients.tail, 0)
    bits_per_value = 2.0 if shape.bits is None else 1.05 * float(shape.bits[0])
    ease, compute_share = _log_uniform(rng, 0.3, 16.0), _log_uniform(rng, 0.02, 0.6)
    while True:  # a model and a deadline whose rates exist
        num_parameters, deadline_s = round(_log_uniform(rng, 1e4, 1e8)), _log_uniform(rng, 0.01, 60.0)
        upload_bits = bits_per_value * num_parameters / stretch(codec, num_parameters)
        rate_bps = ease * upload_bits / (deadline_s * (1.0 - compute_share))
        if RATE_MIN_BPS <= rate_bps <= RATE_MAX_BPS:
            break
    epochs = int(rng.choice([1, 2, 5]))
    updates = epochs * int(rng.choice([1, 3, 10]))
    rate = _log_uniform(rng, 1e-3, 0.5)
    size_mean = _log_uniform(rng, 50, 1e4)
    frequency_max_hz = _log_uniform(rng, 5e8, 3e9)
    path_loss = PATH_LOSSES[number // len(CODECS) % len(PATH_LOSSES)]
    radius_m = _log_uniform(rng, 50, INDOOR_RADIUS_MAX_M if path_loss.startswith("inh") else 2000)
    settings: dict[str, dict[str, Any]] = {
        "federation": {"num_clients": num_clients, "rounds": ROUNDS, "seed": int(rng.integers(2**31))},
        "data": {
            "dataset_size_mean": size_mean,
            "dataset_size_std": size_mean * float(rng.choice([0.0, 0.1, 0.25, 0.5, 1.0])),
            "dataset_size_min": max(1, int(size_mean / 12)),
        },
        "cell": {
            "radius_m": radius_m,
            "path_loss": path_loss,
            "line_of_sight": str(rng.choice(["always", "never", "random"])),
            "shadowing": bool(rng.random() < 0.5),
            "carrier_hz": _log_uniform(rng, 0.7e9, 30e9),
            "base_height_m": 25.0 if path_loss == "uma" else 10.0,
        },
        "radio": {
            "num_channels": max(1, round(num_clients * _log_uniform(rng, 0.1, 2.0))),
            "transmit_power_w": _log_uniform(rng, 0.01, 1.0),
            "gain_db": _rounded(rng.uniform(-5.0, 25.0)),
            "rician_k": float(rng.choice([0.0, _log_uniform(rng, 0.3, 30.0)])),
        },
        "device": {
            "deadline_s": deadline_s,
            "cycles_per_sample": _rounded(compute_share * deadline_s * frequency_max_hz / (epochs * size_mean)),
            "energy_coefficient": _log_uniform(rng, 1e-28, 1e-25),
            "frequency_min_hz": _rounded(frequency_max_hz * _log_uniform(rng, 0.05, 0.8)),
            "frequency_max_hz": frequency_max_hz,
        },
        "learning": {
            "num_parameters": num_parameters,
            "local_updates": updates,
            "local_epochs": epochs,
            "learning_rate": rate,
            "smoothness": _rounded(min(_log_uniform(rng, 1e-3, 100.0), 0.7 / (rate * updates))),
        },
        "codec": {"name": codec},
    }
    settings["radio"].update(_bandwidth(scenario_from_dict(settings), rate_bps))
    return BankScenario("", settings, clients)


def _draw_clients(rng: np.random.Generator) -> ClientModel:
    kind = str(rng.choice(["falling", "falling", "constant", "tiny"]))
    return ClientModel(
        gradient_norm_sq=1e-4 if kind == "tiny" else _log_uniform(rng, 1e-2, 1e2),
        gradient_fall=1e-3 if kind == "falling" else 1.0,
        variance_ratio=_log_uniform(rng, 0.1, 10.0),
        variance_falls=bool(rng.random() < 0.5),
        weight_std=_log_uniform(rng, 0.01, 0.1),
        weight_growth=_log_uniform(rng, 1.0, 4.0),
        update_share=_log_uniform(rng, 0.1, 1.0),
        tail=float(rng.choice([3.0, 5.0, 10.0])),
        client_spread=float(rng.choice([0.0, 0.3, 0.8])),
        lognormal_sizes=bool(rng.random() < 0.3),
    )


def _bandwidth(scenario: Scenario, rate_bps: float) -> dict[str, float]:
    """The bandwidth that gives the median client this rate with average fading.

    Where a bandwidth of 1 GHz does not, the gain is raised.
    """
    radio = scenario.radio_link()
    median_m = float(np.sqrt(0.5 * (scenario.cell.radius_m**2 + scenario.cell.distance_min_m**2)))
    model = radio.path_loss_model()
    likely = radio.line_of_sight == "random" and float(model.line_of_sight_probability(np.array([median_m]))[0]) >= 0.5
    loss_db = float(model.loss_db(np.array([median_m]), np.array([radio.line_of_sight == "always" or likely]))[0])

    def rate_at(bandwidth_hz: float, gain_db: float) -> float:
        power_gain = np.array(db_to_linear(gain_db - loss_db))
        return float(replace(radio, bandwidth_hz=bandwidth_hz).rates_bps(power_gain))

    gain_db = radio.gain_db
    if rate_at(BANDWIDTH_MAX_HZ, gain_db) < rate_bps:
        has_snr = 2.0 ** (rate_at(BANDWIDTH_MAX_HZ, gain_db) / BANDWIDTH_MAX_HZ) - 1.0
        gain_db += float(linear_to_db((2.0 ** (rate_bps / BANDWIDTH_MAX_HZ) - 1.0) / has_snr)) + 3.0
    gain_db = _rounded(min(gain_db, MAX_GAIN_DB))
    low, high = 1e3, BANDWIDTH_MAX_HZ
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if rate_at(middle, gain_db) < rate_bps else (low, middle)
    return {"bandwidth_hz": _rounded(high), "gain_db": gain_db}


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return _rounded(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")
