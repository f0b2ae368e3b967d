"""Client-level differential privacy: what a client does to its change before it is quantized, and what that promises.

A client clips its change of the model to the norm C and adds normal noise to each value. Everything that it sends is
then computed from the noisy change (except the number of its samples), so quantization, aggregation, the server
optimizer and every decision are post-processing. `docs/privacy.md` says against whom the two ε hold.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.errors import ConfigError
from qccf.learning.results import Flat, LocalResult, LocalStatistics

if TYPE_CHECKING:
    from qccf.rounds.packed_table import Columns
    from qccf.settings.schema import Scenario

SENSITIVITY = 2.0
"""Two clipped changes differ by at most 2·C: the relation is that a client's samples are replaced by any others."""

AGGREGATE_ONLY = ("average", "fedavgm", "fedadam", "fedyogi")
"""Server optimizers that see the aggregate and nothing of single clients."""

BLIND_POLICIES = ("fixed-bits", "no-quantization", "channel-allocate")
"""Policies whose decisions depend on radio and dataset sizes only, if sizes of uploads are known in advance."""

FIXED_SIZES = ("model", "update", "block", "update+block")
"""Codecs whose sizes do not depend on the data."""


@dataclass(frozen=True)
class Privacy:
    """What a client is told: C, the standard deviation of its noise, and η·τ, by which G² follows from the change."""

    clip_norm: float
    noise: float
    step: float

    def told(self) -> dict[str, float]:
        """As plain values for a message."""
        return asdict(self)


def client_privacy(scenario: "Scenario", dataset_size: float) -> Privacy | None:
    """What a client with this many samples is told; None where privacy is off."""
    section, learning = scenario.privacy, scenario.learning
    if section.clip_norm == 0.0:
        return None
    step = learning.learning_rate * learning.steps(dataset_size)
    return Privacy(section.clip_norm, section.noise_multiplier * section.clip_norm, step)


def privatised(result: LocalResult, received: Flat, privacy: Privacy | None, rng: np.random.Generator) -> LocalResult:
    """A client's result after clipping and noise. Statistics are computed from the noisy change; the loss is not sent.

    The noise is a part of G², so that the server tolerates a quantization error in proportion to the noisy change.
    """
    if privacy is None or result.hostile:
        return result
    change = result.weights.astype(np.float64) - received
    length = float(np.linalg.norm(change))
    clipped = change * min(1.0, privacy.clip_norm / length) if length > 0.0 else change
    noisy = clipped + privacy.noise * rng.standard_normal(len(change))
    weights = (received + noisy).astype(np.float32)
    statistics = LocalStatistics(
        gradient_norm_sq=float(np.dot(noisy, noisy)) / privacy.step**2,
        gradient_variance=0.0,
        weight_range=float(np.abs(weights).max()),
        loss=math.nan,
    )
    return replace(result, weights=weights, statistics=statistics)


def check_privacy(scenario: "Scenario") -> None:
    """Refuse a run whose ε could not be stated, before anything is computed."""
    if scenario.privacy.clip_norm == 0.0:
        return
    if scenario.learning.num_buffers:
        raise ConfigError(
            f"learning.model = {scenario.learning.model!r} has {scenario.learning.num_buffers:,} buffer values, such "
            "as running averages, which noise would spoil: use a model without them, or privacy.clip_norm = 0."
        )
    _epsilon_of_gaussian(1.0, scenario.privacy.delta)


def privacy_summary(scenario: "Scenario", clients: "Columns") -> dict[str, Any]:
    """ε of a run at its δ: against the server, and against those who see only the models.

    None where there is no finite ε, or where it is not proved; `epsilon_models_unknown` then says why.
    """
    section = scenario.privacy
    if section.clip_norm == 0.0:
        return {}
    rounds = len(np.unique(clients["round"]))
    on, arrived, sizes = (clients[name].reshape(rounds, -1) for name in ("participated", "arrived", "dataset_size"))
    uploads = 1 + int(on.sum(axis=0).max())  # the measurement before the first round is an upload, too
    why = unknown_for_models(scenario)
    models = [_squared_signal(scenario, row[here]) for row, here in zip(sizes, arrived, strict=True) if here.any()]
    return {
        "privacy": {
            "delta": section.delta,
            "uploads": uploads,
            "epsilon_server": epsilon(scenario, uploads * _squared_signal(scenario, np.ones(1))),
            "epsilon_models": None if why else epsilon(scenario, sum(models)),
            "epsilon_models_unknown": why,
        }
    }


def privacy_sentence(summary: dict[str, Any]) -> str:
    """The two ε of a run in words."""
    against_server, models = summary["epsilon_server"], summary["epsilon_models"]
    if against_server is None:
        return "changes are clipped, but privacy.noise_multiplier = 0 adds no noise, so there is no finite ε."
    seen = f"ε = {models:.3g}" if models is not None else f"no ε is stated, because {summary['epsilon_models_unknown']}"
    return (
        f"ε = {against_server:.3g} at δ = {summary['delta']:g} against the server, for a client with "
        f"{summary['uploads']} uploads; against those who see only the models, {seen}."
    )


def unknown_for_models(scenario: "Scenario") -> str:
    """Why no ε against those who see only the models is stated: they depend on more than noisy sums. Empty if it is."""
    rule = scenario.aggregation
    if rule.rule != "mean" or rule.mean.most_norm > 0.0:
        return 'it needs aggregation.rule = "mean" with aggregation.mean.most_norm = 0'
    if scenario.server.optimizer not in AGGREGATE_ONLY:
        return f"it needs server.optimizer = {', '.join(AGGREGATE_ONLY[:-1])} or {AGGREGATE_ONLY[-1]}"
    if scenario.policy.name not in BLIND_POLICIES:
        return f"it needs policy.name = {', '.join(BLIND_POLICIES[:-1])} or {BLIND_POLICIES[-1]}"
    if scenario.policy.name != "no-quantization" and scenario.codec.name not in FIXED_SIZES:
        return f"it needs codec.name = {', '.join(FIXED_SIZES[:-1])} or {FIXED_SIZES[-1]}"
    return ""


def epsilon(scenario: "Scenario", squared_signal: float) -> float | None:
    """ε of normal mechanisms in a row, of which `squared_signal` is the sum of (sensitivity/deviation)².

    Together they are one normal mechanism with this sum, also if each depends on the ones before. None without noise.
    """
    if not math.isfinite(squared_signal):
        return None
    return _epsilon_of_gaussian(1.0 / math.sqrt(squared_signal), scenario.privacy.delta) if squared_signal else 0.0


def _squared_signal(scenario: "Scenario", sizes: FloatArray) -> float:
    """(sensitivity/deviation)² of the mean of a round: the largest weight counts for the one, all for the other."""
    weights = sizes / sizes.sum()
    deviation = scenario.privacy.noise_multiplier * math.sqrt(float(np.square(weights).sum()))
    return (SENSITIVITY * float(weights.max()) / deviation) ** 2 if deviation else math.inf


def _epsilon_of_gaussian(multiplier: float, delta: float) -> float:
    try:
        from dp_accounting import get_epsilon_gaussian
    except ImportError:
        raise ConfigError(
            "privacy.clip_norm needs the package dp-accounting, which states ε: pip install 'qccf[privacy]'."
        ) from None
    return float(get_epsilon_gaussian(multiplier, delta))
