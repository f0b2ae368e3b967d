"""Whose turn it is: which clients take part in a round, before bits and channels are decided.

As many clients as channels and links allow, or a share of them. Among those that can upload, turns that are owed count
most, then energy. Error plays no part: a poor link is no reason to be left out for ever.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from qccf.control.matching import cheapest_matching
from qccf.core.contracts import BoolArray, Constants, FloatArray, IntArray, Observation
from qccf.devices import cost
from qccf.quantization import costs


class Turns(NamedTuple):
    """`owed` is each client's fair share of the round, `channels` a first assignment, -1 for who sits out."""

    owed: FloatArray
    channels: IntArray


def usable_pairs(observation: Observation, constants: Constants) -> BoolArray:
    """Which pairs [client, channel] carry one bit per parameter within the deadline at full speed and power."""
    full = replace(constants, adapt_power=False)
    return np.isfinite(_sent(np.ones(observation.num_clients, dtype=np.int64), observation, full).frequency_hz)


def most_bits_in_time(observation: Observation, constants: Constants) -> IntArray:
    """The most bits that each pair [client, channel] carries in time at the highest frequency; at least 1."""
    cycles = cost.training_cycles(observation.statistics.dataset_sizes, constants)
    time_left_s = np.maximum(constants.deadline_s - cycles / constants.frequency_max_hz, 0.0)
    most = costs.most_bits(observation.rates_bps * time_left_s[:, None], observation.statistics, constants)
    return np.maximum(most, 1).astype(np.int64)


def most_participants(usable: BoolArray) -> int:
    """The most clients that can take part at once: a maximum matching of clients and channels that serve them."""
    able = np.asarray(usable.any(axis=1))
    if usable[able].all():
        return min(int(able.sum()), usable.shape[1])
    return int((maximum_bipartite_matching(csr_matrix(usable[able]), perm_type="column") >= 0).sum())


def whose_turn(
    observation: Observation,
    constants: Constants,
    num_bits: IntArray,
    debts: FloatArray,
    share: float,
    factors: FloatArray | None = None,
) -> Turns:
    """The clients of this round. `num_bits` are the bits with which each client's energy is judged.

    A turn is worth e^debt times the median client's energy. With a share of 1 every channel that can be used is used.
    Otherwise as many clients take part as turns are owed: those that are worth most beyond their energy. `factors` say
    how much more the energy of each client counts.
    """
    usable = usable_pairs(observation, constants)
    able = np.asarray(usable.any(axis=1))
    nobody = np.full(len(able), -1, dtype=np.int64)
    most = most_participants(usable)
    if most == 0:
        return Turns(np.zeros(len(able)), nobody)
    owed = np.where(able, share * most / able.sum(), 0.0)
    # What a pair costs: its energy with the given bits; where these do not fit in time, the most it could spend.
    cycles = cost.training_cycles(observation.statistics.dataset_sizes, constants)
    most_j = cost.compute_energy_j(cycles, constants.frequency_max_hz, constants)
    most_j = most_j + constants.wake_energy_j + constants.upload_power_w * constants.deadline_s
    spent_j = _energy_j(num_bits, observation, constants)
    spent_j = np.where(np.isfinite(spent_j), spent_j, np.where(usable, most_j[:, None], np.inf))
    if factors is not None:
        spent_j, most_j = spent_j * factors[:, None], most_j * factors
    least_j = spent_j.min(axis=1)
    worth = np.exp(debts) * float(np.median(least_j[able]))
    if share >= 1.0:
        dearest = float(most_j[able].sum() + worth[able].sum())
        return Turns(owed, cheapest_matching(spent_j - worth[:, None] - 2.0 * dearest)[1])
    wanted = int(np.clip(round(float((owed + debts)[able].sum())), 1, most))
    scale = float(np.sort((least_j / worth)[able])[wanted - 1]) * (1.0 + 1e-9)
    channels = nobody
    while (channels >= 0).sum() < wanted:  # ends: where debts outweigh all energy, every channel is used
        net_j = spent_j - scale * worth[:, None]
        channels = cheapest_matching(net_j)[1]
        scale *= 1.5
    served = np.flatnonzero(channels >= 0)
    beyond = served[np.argsort(net_j[served, channels[served]], kind="stable")[wanted:]]
    channels[beyond] = -1
    return Turns(owed, channels)


class _Sent(NamedTuple):
    """Uploads of each pair [client, channel]; the frequency is infinite where the deadline is missed."""

    cycles: FloatArray
    upload: cost.Transmission
    frequency_hz: FloatArray


def _sent(num_bits: IntArray, observation: Observation, constants: Constants) -> _Sent:
    c, s = constants, observation.statistics
    rows = np.arange(observation.num_clients)
    bits = np.broadcast_to(costs.payload_bits(num_bits, rows, s, c), rows.shape)
    cycles = cost.training_cycles(s.dataset_sizes, c)[:, None]
    upload = cost.transmission(bits[:, None], observation.rates_bps, cycles, c)
    return _Sent(cycles, upload, cost.slowest_frequency_hz(cycles, upload.upload_s, c))


def _energy_j(num_bits: IntArray, observation: Observation, constants: Constants) -> FloatArray:
    """Energy of each pair [client, channel] with these bits; infinite where the deadline is missed."""
    cycles, upload, frequency_hz = _sent(num_bits, observation, constants)
    with np.errstate(invalid="ignore"):
        spent_j = cost.compute_energy_j(cycles, frequency_hz, constants) + cost.upload_energy_j(upload, constants)
    return np.where(np.isfinite(frequency_hz), spent_j, np.inf)
