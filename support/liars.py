"""A bank of lying reports: every field, how and how often it is false, and how many clients lie.

Uploads are real, of a model small enough that a round takes milliseconds; nothing is trained. The honest run and the
one with liars differ only in what the liars report, so that whatever changes for the honest clients is their doing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from qccf.core.contracts import FloatArray, Statistics
from qccf.core.streams import key, stream
from qccf.learning.results import Flat, LocalStatistics
from qccf.quantization.protocol import Forecast
from qccf.rounds import uplink
from qccf.rounds.claims import registered_sizes
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import OpenRound, RoundRules, ServerState, run_round, state_at
from qccf.rounds.setup import build_rules, claim_rules, scenario_codec
from qccf.rounds.uplink import Upload
from qccf.rounds.world import build_world, draw_dataset_sizes
from tests.helpers.tiny import tiny_scenario

ROUNDS = 8
FIELDS = (
    "dataset_size", "gradient_norm_sq", "gradient_variance", "weight_range", "loss", "error_scale", "upload_errors",
    "upload_bits",
)  # fmt: skip
LIES: dict[str, Callable[[float, int], float]] = {
    "1e30": lambda *_: 1e30,
    "100 times": lambda value, _: 100.0 * value,
    "15 times": lambda value, _: 15.0 * value,
    "a hundredth": lambda value, _: value / 100.0,
    "zero": lambda *_: 0.0,
    "negative": lambda value, _: -value - 1.0,
    "NaN": lambda *_: float("nan"),
    "oscillating": lambda value, n: value * (100.0 if n % 2 else 0.01),
}
ONCE = 3
"""The round in which a client lies that lies once."""
LIARS = {
    "1 of 3": (3, 3, (1,)),
    "1 of 10": (10, 10, (1,)),
    "2 of 10": (10, 5, (1, 6)),
    "1 of 10, 8 late": (10, 10, (1,)),
}
"""Clients, channels, and who lies."""
LATE = {"1 of 10, 8 late": tuple(range(2, 10))}
"""Clients that are not measured before the first round and state nothing before their first upload.

Of the two that are measured one lies, and nobody can tell which. In the default form late clients get their turns all
the same. In the paper's form a client that seems to have small gradients has none, so nothing is promised there.
"""
FORMS = ("scale-free", "paper")


@dataclass(frozen=True)
class Case:
    """One lie."""

    field: str
    lie: str
    often: str
    liars: str
    form: str

    def __str__(self) -> str:
        return f"{self.field} {self.lie}, {self.often}, {self.liars} clients, {self.form} form"


def bank() -> list[Case]:
    """All cases. A dataset size is stated once, a whole number from 1 on."""
    every = [Case(*one) for one in product(FIELDS, LIES, ("once", "always"), LIARS, FORMS)]
    every = [one for one in every if one.liars not in LATE or one.form == FORMS[0]]
    numbers = {"zero", "negative", "NaN", "oscillating"}
    return [one for one in every if one.field != "dataset_size" or (one.often == "always" and one.lie not in numbers)]


class MadeUploads:
    """Vectors drawn for each client and round instead of training; `case` says who lies about them."""

    def __init__(self, rules: RoundRules, sizes: FloatArray, case: Case | None) -> None:
        self._rules, self._sizes, self._case = rules, sizes, case
        self._liars = () if case is None else LIARS[case.liars][2]

    def initial_statistics(self) -> Statistics:
        weights = np.zeros(self._rules.constants.num_parameters, dtype=np.float32)
        reports = {}
        for client in range(len(self._sizes)):
            statistics, forecast, _ = self._reported(client, -1, weights)
            reports[client] = (statistics, forecast)
        blank = uplink.blank_statistics(self._sizes, self._rules.codec)
        return uplink.updated_statistics(blank, reports, safety_margin=self._rules.safety_margin)

    def uploads(self, state: ServerState, opened: OpenRound) -> Mapping[int, Upload]:
        assert state.weights is not None
        n, made = state.round_index, {}
        for client in map(int, np.flatnonzero(opened.to_train)):
            statistics, forecast, vector = self._reported(client, n, state.weights)
            payload = self._rules.codec.encode(vector, int(opened.decision.num_bits[client]), key(0, "lie", client, n))
            made[client] = Upload(payload, float(self._rules.codec.size_bits(payload)), statistics, forecast)
        return made

    def evaluate(self, weights: Flat | None, round_index: int) -> tuple[float, float]:
        return np.nan, np.nan

    def _reported(self, client: int, n: int, weights: Flat) -> tuple[LocalStatistics, Forecast, Flat]:
        """What a client says of its vector in a round, -1 for the probe, and the vector itself."""
        c, chance = self._rules.constants, stream(5, "vectors", client, n + 1)
        steps = c.learning_rate * c.local_updates
        scale = 0.02 * np.exp(0.3 * stream(5, "client", client).normal() - 0.05 * n)
        vector = (scale * chance.standard_t(4, c.num_parameters)).astype(np.float32)
        norm_sq = float(np.square(vector, dtype=np.float64).sum()) / steps**2
        statistics = LocalStatistics(
            norm_sq,
            norm_sq * float(np.exp(0.5 * chance.normal())),
            float(np.abs(weights + vector).max()),
            float(2.0 * np.exp(-0.05 * n + 0.1 * chance.normal())),
        )
        forecast = self._rules.codec.forecast(vector)
        case = self._case
        if case is None or client not in self._liars or (case.often == "once" and n != ONCE):
            return statistics, forecast, vector

        def false(value: float) -> float:
            return LIES[case.lie](value, n)

        if case.field in LocalStatistics.__slots__:
            statistics = replace(statistics, **{case.field: false(getattr(statistics, case.field))})
        else:
            forecast = _false_forecast(case.field, forecast, false)
        return statistics, forecast, vector


def _false_forecast(field: str, forecast: Forecast, false: Callable[[float], float]) -> Forecast:
    if field == "upload_bits" and forecast.bits is not None:
        return replace(forecast, bits=np.array([false(one) for one in forecast.bits]))
    if field == "upload_errors" and forecast.errors is not None:
        return replace(forecast, errors=np.array([false(one) for one in forecast.errors]))
    if field == "error_scale" and forecast.errors is not None:
        scale = false(forecast.error_scale)
        share = scale / forecast.error_scale
        return Forecast(scale, forecast.bits, forecast.errors * share)
    return forecast


@dataclass(frozen=True)
class Effect:
    """What liars change for the honest clients.

    `lost` is the largest share of rounds that one honest client loses, `gained` the sum of what they gain, in clients
    that take part in every round; `bits` is the change of their mean bits, `energy` the factor on the energy of one of
    their uploads, and `share` the liars' share of all data.
    """

    lost: float
    gained: float
    bits: float
    energy: float
    share: float
    finite: bool


def measured(case: Case) -> Effect:
    """The effect of one lie."""
    count, _, liars = LIARS[case.liars]
    honest_run, false_run = decided(case.liars, case.form, None), decided(case.liars, case.form, case)
    honest = np.setdiff1d(np.arange(count), liars)

    def of(tables: dict[str, FloatArray], name: str) -> FloatArray:
        return np.asarray(tables[name].reshape(ROUNDS, count)[:, honest], dtype=float)

    before, after = of(honest_run, "participated"), of(false_run, "participated")
    change = after.mean(axis=0) - before.mean(axis=0)
    uploads = [max(one.sum(), 1.0) for one in (before, after)]
    spent = [of(run, "compute_energy_j") + of(run, "upload_energy_j") for run in (honest_run, false_run)]
    bits, energy = (
        [one.sum() / count for one, count in zip(pair, uploads, strict=True)]
        for pair in ([of(run, "num_bits") for run in (honest_run, false_run)], spent)
    )
    sizes = false_run["dataset_size"][:count]
    return Effect(
        lost=float(np.maximum(-change, 0.0).max()),
        gained=float(np.maximum(change, 0.0).sum()),
        bits=float(bits[1] - bits[0]),
        energy=float(energy[1] / energy[0]),
        share=float(sizes[list(liars)].sum() / sizes.sum()),
        finite=all(
            np.isfinite(false_run[name]).all() for name in ("compute_energy_j", "upload_energy_j", "weight_range")
        ),
    )


@lru_cache(maxsize=64)
def decided(liars: str, form: str, case: Case | None) -> dict[str, FloatArray]:
    """The clients' table of a run, honest without a case."""
    count, channels, who = LIARS[liars]
    scenario = tiny_scenario(
        f"federation.num_clients={count}",
        f"radio.num_channels={channels}",
        f"federation.rounds={ROUNDS}",
        f"control.form={form}",
        "codec.name=update+entropy",
    )
    stated = {client: int(size) for client, size in enumerate(draw_dataset_sizes(scenario, 0))}
    if case is not None and case.field == "dataset_size":
        for client in who:
            stated[client] = max(1, int(LIES[case.lie](stated[client], 0)))
    present = set(range(count)) - set(LATE.get(liars, ()))
    limits = claim_rules(scenario)

    def sizes() -> FloatArray:
        return registered_sizes({client: stated[client] for client in present}, count, limits)[0]

    rules = replace(build_rules(scenario, scenario_codec(scenario)), warn=lambda _: None)
    world, ledger = build_world(scenario, 0, sizes()), Ledger()
    source = MadeUploads(rules, sizes(), case)
    reported = np.isin(np.arange(count), list(present))
    weights = np.zeros(rules.constants.num_parameters, dtype=np.float32)
    state = state_at(rules, source.initial_statistics(), weights, reported)
    for _ in range(ROUNDS):
        state = run_round(state, rules, world, source, ledger)
        present |= set(np.flatnonzero(ledger.tables()["clients"]["arrived"][-count:]).tolist())
        state = replace(state, statistics=replace(state.statistics, dataset_sizes=sizes()))
    return ledger.tables()["clients"]


MOST_BITS = 1.0
ENERGY = (0.75, 1.3)


def harm(case: Case, effect: Effect) -> str:
    """What goes beyond the liars' share, or nothing.

    No honest client loses more rounds than the liars' share of all clients and one more. Together they gain at most the
    places that the liars give up, where channels are few. An upload has as many bits, within one, and takes the same
    energy, within a quarter or so. The aggregate belongs to liars no more than the limit of dataset sizes allows.
    """
    count, _, liars = LIARS[case.liars]
    most_share = 1.2 * 4.0 * len(liars) / (4.0 * len(liars) + count - len(liars))
    found = {
        "not finite": not effect.finite,
        f"a client loses {effect.lost:.2f} of its rounds": effect.lost > len(liars) / count + 1.0 / ROUNDS,
        f"honest clients gain {effect.gained:.2f} places": effect.gained > len(liars),
        f"bits by {effect.bits:+.2f}": abs(effect.bits) > MOST_BITS,
        f"energy by a factor of {effect.energy:.2f}": not ENERGY[0] <= effect.energy <= ENERGY[1],
        f"share of the data {effect.share:.2f}": effect.share > most_share,
    }
    return ", ".join(text for text, beyond in found.items() if beyond)
