"""Sources of uploads that need no training: a bundled recording, constant statistics, a trace, or a recorded run."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

from qccf.core.contracts import Decision, FloatArray, Statistics
from qccf.core.csv_tables import csv_table
from qccf.core.errors import ConfigError
from qccf.learning.results import Flat, LocalStatistics
from qccf.quantization.protocol import Codec, Forecast
from qccf.quantization.registry import build_codec
from qccf.rounds.ledger import STATISTICS
from qccf.rounds.packed_table import Columns
from qccf.rounds.recordings import CodecTables, Recording, bundled_recording, recording_name, update_scale
from qccf.rounds.round import OpenRound, ServerState
from qccf.rounds.run import Run
from qccf.rounds.uplink import Upload
from qccf.settings.schema import BUNDLED_TRACES, PAPERS_CODEC, Scenario

TRACE_COLUMNS = ("gradient_norm_sq", "gradient_variance", "weight_range", "loss")
TRACE_LIMIT = 1e6
LEAST_FALL = 1e-9
"""A loss that falls by less than this power of the round is constant up to rounding."""


class _WithoutTraining:
    """What the sources here have in common: they know each client's statistics at the start of each round."""

    def known(self, round_index: int) -> Statistics:
        """The statistics of all clients at the start of a round."""
        raise NotImplementedError

    def losses(self, round_index: int) -> FloatArray:
        """The losses that the clients measure in a round."""
        raise NotImplementedError

    def initial_statistics(self) -> Statistics:
        return self.known(0)

    def uploads(self, state: ServerState, opened: OpenRound) -> Mapping[int, Upload]:
        after, losses = self.known(state.round_index + 1), self.losses(state.round_index)
        sizes_bits = self.sizes_bits(state.round_index, opened.decision)
        return {
            int(client): _upload(after, losses, int(client), float(sizes_bits[client]))
            for client in np.flatnonzero(opened.to_train)
        }

    def sizes_bits(self, round_index: int, decision: Decision) -> FloatArray:
        """The sizes on the air of a round's uploads; NaN charges the size that was forecast."""
        return np.full(len(decision.num_bits), np.nan)

    def evaluate(self, weights: Flat | None, round_index: int) -> tuple[float, float]:
        return np.nan, np.nan


def shrunk_gradients(decay: float, round_index: int) -> float:
    """The factor of squared gradients that are known in a round, in units of the first learning rate: they were
    measured in the round before."""
    return float(decay ** (2 * max(round_index - 1, 0)))


def fall_of_loss(rounds: FloatArray, losses: FloatArray) -> float:
    """a ≥ 0 of the power law loss ~ round^-a, fitted to the second half of a training's mean losses."""
    late = (rounds >= rounds[-1] / 2.0) & (rounds > 0.0) & (losses > 0.0)
    if late.sum() < 2:
        return 0.0
    fall = -float(np.polyfit(np.log(rounds[late]), np.log(losses[late]), 1)[0])
    return fall if fall > LEAST_FALL else 0.0


def continued(last: FloatArray, last_round: float, round_index: float, fall: float) -> FloatArray:
    """Losses beyond the last round that is known: they go on falling by the same power law."""
    return last * (last_round / round_index) ** fall if round_index > last_round > 0.0 else last


def _upload(after: Statistics, losses: FloatArray, client: int, size_bits: float) -> Upload:
    statistics = LocalStatistics(
        float(after.gradient_norms_sq[client]),
        float(after.gradient_variances[client]),
        float(after.weight_ranges[client]),
        float(losses[client]),
    )
    forecast = None
    if after.error_scales is not None:
        sizes = None if after.upload_bits is None else after.upload_bits[client]
        errors = None if after.upload_errors is None else after.upload_errors[client]
        forecast = Forecast(float(after.error_scales[client]), sizes, errors)
    return Upload(None, size_bits, statistics, forecast)


class StatisticsModel(_WithoutTraining):
    """Constants from the settings, or a trace file.

    A trace is CSV with a `round` column, any of `gradient_norm_sq`, `gradient_variance`, `weight_range` and `loss`, and
    optionally `client`. A row holds what is known at the start of its round. Values are interpolated between the
    rounds of the trace and held beyond them, except that the loss goes on falling; a missing column is constant.
    Gradients are those at one learning rate: where it decays, they are told in units of the first, as clients do.
    """

    def __init__(self, scenario: Scenario, dataset_sizes: FloatArray) -> None:
        s = scenario.statistics
        self._constants = {name: getattr(s, name) for name in TRACE_COLUMNS}
        self._sizes = dataset_sizes
        self._series = read_trace(s.trace, len(dataset_sizes)) if s.model == "trace" else {}
        self._decay = scenario.learning.decay

    def known(self, round_index: int) -> Statistics:
        values, shrunk = self._values(round_index), shrunk_gradients(self._decay, round_index)
        return Statistics(
            dataset_sizes=self._sizes,
            gradient_norms_sq=values["gradient_norm_sq"] * shrunk,
            gradient_variances=values["gradient_variance"] * shrunk,
            weight_ranges=values["weight_range"],
        )

    def losses(self, round_index: int) -> FloatArray:
        return self._values(round_index)["loss"]

    def _values(self, round_index: int) -> dict[str, FloatArray]:
        values = {name: np.full(len(self._sizes), value) for name, value in self._constants.items()}
        for (name, client), (rounds, series) in self._series.items():
            value = np.asarray(np.interp(round_index, rounds, series))
            if name == "loss":
                value = continued(value, rounds[-1], round_index, fall_of_loss(rounds, series))
            values[name][slice(None) if client is None else client] = value
        return values


class BundledStatistics(_WithoutTraining):
    """What a real training measured, from a recording that comes with the package, or from another one.

    Values are interpolated between the rounds of the recording and held after the last, except that the loss goes on
    falling. Clients take those of the recorded clients in turn. Sizes and errors are scaled to the number of
    parameters. The server knows sizes with the codec's safety margin; what is sent has the size without it.
    """

    def __init__(self, scenario: Scenario, dataset_sizes: FloatArray, recording: Recording | None = None) -> None:
        self.recording = recording or bundled_recording(recording_name(scenario))
        self._codec = priced_tables(self.recording, scenario)
        self._sizes = dataset_sizes
        self._clients = np.arange(len(dataset_sizes)) % self.recording.num_clients
        self._relative = build_codec(scenario.codec.name, 2, [2]).relative
        self._scale = scenario.learning.num_parameters / self.recording.num_parameters
        if self._relative:
            self._scale *= update_scale(self.recording, scenario)
        self._num_parameters = scenario.learning.num_parameters
        self._decay = scenario.learning.decay
        self._margin = scenario.codec.safety_margin

    def known(self, round_index: int) -> Statistics:
        series, sizes_bits = self.recording.series, self._sizes_bits(round_index)
        shrunk = shrunk_gradients(self._decay, round_index)
        scale = self._scale * (shrunk if self._relative else 1.0)
        return Statistics(
            dataset_sizes=self._sizes,
            gradient_norms_sq=self._at(series["gradient_norm_sq"], round_index) * shrunk,
            gradient_variances=self._at(series["gradient_variance"], round_index) * shrunk,
            weight_ranges=self._at(series["weight_range"], round_index),
            error_scales=self._at(self._codec.error_scales, round_index) * scale,
            upload_bits=None if sizes_bits is None else sizes_bits * (1.0 + self._margin),
            upload_errors=self._at(self._codec.errors, round_index) * scale,
        )

    def losses(self, round_index: int) -> FloatArray:
        rounds, losses = self.recording.rounds, self.recording.series["loss"]
        fall = fall_of_loss(rounds, losses.mean(axis=1))
        return continued(self._at(losses, round_index + 1), rounds[-1], round_index + 1, fall)

    def sizes_bits(self, round_index: int, decision: Decision) -> FloatArray:
        table = self._sizes_bits(round_index + 1)
        if table is None or decision.raw:
            return super().sizes_bits(round_index, decision)
        return np.asarray(table[np.arange(len(table)), np.maximum(decision.num_bits, 1) - 1])

    def _sizes_bits(self, round_index: int) -> FloatArray | None:
        """Sizes [client, q - 1], which never fall as bits are added; None for a codec whose size is affine in q."""
        per_parameter = self._codec.bits_per_parameter
        if per_parameter is None:
            return None
        return np.maximum.accumulate(self._at(per_parameter, round_index), axis=1) * self._num_parameters

    def _at(self, values: FloatArray, round_index: int) -> FloatArray:
        """Values [round, client, …] at a round, one row per client."""
        rounds = self.recording.rounds
        after = min(int(np.searchsorted(rounds, round_index)), len(rounds) - 1)
        before = max(after - 1, 0)
        span = rounds[after] - rounds[before]
        share = min((round_index - rounds[before]) / span, 1.0) if span else 0.0
        return np.asarray((values[before] * (1.0 - share) + values[after] * share)[self._clients])


def priced_tables(recording: Recording, scenario: Scenario) -> CodecTables:
    """The recorded sizes and errors of the scenario's codec; refuses a codec that was not recorded."""
    codec = scenario.codec
    if codec.name not in recording.codecs or codec.options:
        options = " with codec.options" if codec.name in recording.codecs else ""
        raise ConfigError(
            f"codec {codec.name!r}{options} is not in the recorded statistics ({', '.join(recording.codecs)}): train "
            "it with `qccf run` and plan with --statistics-from RUN."
        )
    return recording.codecs[codec.name]


def require_constant_price(scenario: Scenario, codec: Codec) -> None:
    """Refuse a codec whose sizes depend on the data where the statistics are constants or a trace."""
    if not codec.affine:
        raise ConfigError(
            f'statistics.model = "{scenario.statistics.model}" cannot price codec {scenario.codec.name!r}, whose sizes '
            'depend on the data: set statistics.model = "recorded", plan with --statistics-from RUN, or use codec '
            f"{PAPERS_CODEC!r}."
        )


def statistics_source(scenario: Scenario, dataset_sizes: FloatArray) -> "StatisticsModel | BundledStatistics":
    """The source that the settings name."""
    if scenario.statistics.model == "recorded":
        return BundledStatistics(scenario, dataset_sizes)
    return StatisticsModel(scenario, dataset_sizes)


class RecordedStatistics(_WithoutTraining):
    """What a training run measured. A client that sat out in the recording keeps its last values.

    Beyond the last recorded round the last values are held, except that the loss goes on falling and that gradients
    and updates shrink with a learning rate that decays. The recorded sizes include the safety margin.
    """

    def __init__(self, run: Run) -> None:
        if not run.statistics_columns:
            raise ConfigError(f"{run.folder} holds no recorded statistics: train the run again with this version.")
        self._rounds = run.num_rounds
        self._columns: Columns = {
            name: column.reshape(run.num_rounds, -1, *column.shape[1:])
            for name, column in run.statistics_columns.items()
        }
        self._decay = run.scenario.learning.decay
        self._relative = build_codec(run.scenario.codec.name, 2, [2]).relative
        self._losses = run.by_round("loss").astype(float)
        self._fall = fall_of_loss(np.arange(1.0, run.num_rounds + 1.0), _means(self._losses))

    def known(self, round_index: int) -> Statistics:
        at = min(round_index, self._rounds - 1)
        known = Statistics(
            **{field: self._columns[name][at] for name, field in STATISTICS.items() if name in self._columns}
        )
        return known if round_index == at or self._decay == 1.0 else self._shrunk(known, round_index - at)

    def _shrunk(self, known: Statistics, rounds: int) -> Statistics:
        """The last known statistics after some more rounds of a learning rate that decays."""
        factor = self._decay ** (2 * rounds)
        of_updates = factor if self._relative else 1.0
        return replace(
            known,
            gradient_norms_sq=known.gradient_norms_sq * factor,
            gradient_variances=known.gradient_variances * factor,
            error_scales=None if known.error_scales is None else known.error_scales * of_updates,
            upload_errors=None if known.upload_errors is None else known.upload_errors * of_updates,
        )

    def losses(self, round_index: int) -> FloatArray:
        last = np.asarray(self._losses[min(round_index, self._rounds - 1)])
        return continued(last, self._rounds, round_index + 1, self._fall)


def _means(losses: FloatArray) -> FloatArray:
    """The mean loss of each round over the clients that measured one; 0 where nobody did."""
    counts = np.isfinite(losses).sum(axis=1)
    return np.nansum(losses, axis=1) / np.maximum(counts, 1)


def check_statistics(scenario: Scenario, codec: Codec) -> None:
    """Find mistakes in the statistics that the settings name early: a broken trace, or a codec without a price."""
    if scenario.statistics.model != "recorded":
        require_constant_price(scenario, codec)
    statistics_source(scenario, np.ones(scenario.federation.num_clients))


_Series = dict[tuple[str, int | None], tuple[FloatArray, FloatArray]]


def read_trace(name: str, num_clients: int) -> _Series:
    """The points of a trace: (column, client) to rounds and values; client None is all clients."""
    try:
        if name in BUNDLED_TRACES:
            text = (
                resources.files("qccf.settings")
                .joinpath("presets", "traces", f"{name}.csv")
                .read_text(encoding="utf-8")
            )
        else:
            text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"statistics.trace = {name!r} cannot be read: {reason}; bundled traces: {', '.join(BUNDLED_TRACES)}."
        ) from None
    try:
        names, rows = csv_table(text.splitlines())
    except csv.Error as error:
        raise ConfigError(f"statistics.trace = {name!r} is not a CSV file: {error}.") from None
    columns = set(names)
    unknown = columns - {"round", "client", *TRACE_COLUMNS}
    if "round" not in columns or unknown:
        problem = f"has the unknown column {sorted(unknown)[0]!r}" if unknown else "has no column 'round'"
        raise ConfigError(
            f"statistics.trace = {name!r} {problem}: it has round, any of {', '.join(TRACE_COLUMNS)}, perhaps client."
        )
    points: dict[tuple[str, int | None], list[tuple[float, float]]] = {}
    if len(columns) < len(names):
        raise ConfigError(f"statistics.trace = {name!r} has a column twice.")
    for line, found in enumerate(rows, start=1):
        if len(found) != len(names):
            raise ConfigError(
                f"statistics.trace = {name!r}: row {line} has {len(found)} cells, but there are {len(names)} columns."
            )
        row = dict(zip(names, found, strict=True))
        try:
            client = int(row["client"]) if "client" in columns else None
            cells = {column: float(row[column]) for column in columns - {"client"}}
        except ValueError:
            raise ConfigError(f"statistics.trace = {name!r}: row {line} is not all numbers: {row}.") from None
        if client is not None and not 0 <= client < num_clients:
            raise ConfigError(
                f"statistics.trace = {name!r}: row {line} names client {client}, but there are clients 0 to "
                f"{num_clients - 1}."
            )
        if not all(0.0 <= value <= TRACE_LIMIT for value in cells.values()):
            raise ConfigError(
                f"statistics.trace = {name!r}: row {line} has a value that is not between 0 and {TRACE_LIMIT:g}."
            )
        for column in columns & set(TRACE_COLUMNS):
            points.setdefault((column, client), []).append((cells["round"], cells[column]))
    if not points:
        raise ConfigError(f"statistics.trace = {name!r} holds no values.")
    if any(len({n for n, _ in series}) < len(series) for series in points.values()):
        raise ConfigError(f"statistics.trace = {name!r} gives a round twice.")
    return {key: (np.array(sorted(p))[:, 0], np.array(sorted(p))[:, 1]) for key, p in points.items()}
