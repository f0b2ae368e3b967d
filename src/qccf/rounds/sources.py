"""Sources of uploads that need no training: a bundled recording, constant statistics, a trace, or a recorded run."""

import csv
from collections.abc import Mapping
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
    rounds of the trace and held beyond them; a missing column is constant.
    """

    def __init__(self, scenario: Scenario, dataset_sizes: FloatArray) -> None:
        s = scenario.statistics
        self._constants = {name: getattr(s, name) for name in TRACE_COLUMNS}
        self._sizes = dataset_sizes
        self._series = read_trace(s.trace, len(dataset_sizes)) if s.model == "trace" else {}

    def known(self, round_index: int) -> Statistics:
        values = self._values(round_index)
        return Statistics(
            dataset_sizes=self._sizes,
            gradient_norms_sq=values["gradient_norm_sq"],
            gradient_variances=values["gradient_variance"],
            weight_ranges=values["weight_range"],
        )

    def losses(self, round_index: int) -> FloatArray:
        return self._values(round_index)["loss"]

    def _values(self, round_index: int) -> dict[str, FloatArray]:
        values = {name: np.full(len(self._sizes), value) for name, value in self._constants.items()}
        for (name, client), (rounds, series) in self._series.items():
            value = np.interp(round_index, rounds, series)
            values[name][slice(None) if client is None else client] = value
        return values


class BundledStatistics(_WithoutTraining):
    """What a short real training measured, from a recording that comes with the package.

    Values are interpolated between the rounds of the recording and held after the last. Clients take those of the
    recorded clients in turn. Sizes and errors are scaled to the number of parameters. The server knows sizes with the
    codec's safety margin; what is sent has the size without it.
    """

    def __init__(self, scenario: Scenario, dataset_sizes: FloatArray) -> None:
        self.recording = bundled_recording(recording_name(scenario))
        self._codec = priced_tables(self.recording, scenario)
        self._sizes = dataset_sizes
        self._clients = np.arange(len(dataset_sizes)) % self.recording.num_clients
        self._scale = scenario.learning.num_parameters / self.recording.num_parameters
        if build_codec(scenario.codec.name, 2, [2]).relative:
            self._scale *= update_scale(self.recording, scenario)
        self._num_parameters = scenario.learning.num_parameters
        self._margin = scenario.codec.safety_margin

    def known(self, round_index: int) -> Statistics:
        series, sizes_bits = self.recording.series, self._sizes_bits(round_index)
        return Statistics(
            dataset_sizes=self._sizes,
            gradient_norms_sq=self._at(series["gradient_norm_sq"], round_index),
            gradient_variances=self._at(series["gradient_variance"], round_index),
            weight_ranges=self._at(series["weight_range"], round_index),
            error_scales=self._at(self._codec.error_scales, round_index) * self._scale,
            upload_bits=None if sizes_bits is None else sizes_bits * (1.0 + self._margin),
            upload_errors=self._at(self._codec.errors, round_index) * self._scale,
        )

    def losses(self, round_index: int) -> FloatArray:
        return self._at(self.recording.series["loss"], round_index + 1)

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

    Beyond the last recorded round the last values are held. The recorded sizes include the safety margin.
    """

    def __init__(self, run: Run) -> None:
        if not run.statistics_columns:
            raise ConfigError(f"{run.folder} holds no recorded statistics: train the run again with this version.")
        self._rounds = run.num_rounds
        self._columns: Columns = {
            name: column.reshape(run.num_rounds, -1, *column.shape[1:])
            for name, column in run.statistics_columns.items()
        }
        self._losses = run.by_round("loss").astype(float)

    def known(self, round_index: int) -> Statistics:
        at = min(round_index, self._rounds - 1)
        return Statistics(
            **{field: self._columns[name][at] for name, field in STATISTICS.items() if name in self._columns}
        )

    def losses(self, round_index: int) -> FloatArray:
        return np.asarray(self._losses[min(round_index, self._rounds - 1)])


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
