"""Both forms of a round's problem in plain scalar Python, with no array library and none of the package's code.

Only the data classes are shared. Slow on purpose: every allocation, every number of bits.
"""

import itertools
import math
from collections.abc import Iterator

from qccf.control.problem import Problem, RoundProblem
from qccf.control.scale_free import ScaleFreeProblem


def payload(problem: Problem, client: int, bits: int) -> float:
    """ℓ: Zq + Z + 32, unless a codec says otherwise."""
    c, listed = problem.constants, problem.observation.statistics.upload_bits
    if listed is not None:
        return float(listed[client, bits - 1])
    if c.bits_per_index is not None and c.overhead_bits is not None:
        return c.bits_per_index * bits + c.overhead_bits
    return c.num_parameters * bits + c.num_parameters + 32


def error_bound(problem: Problem, client: int, bits: int) -> float:
    """Lemma 1, or a codec's own c."""
    s = problem.observation.statistics
    if s.error_scales is not None:
        return float(s.error_scales[client]) / (2**bits - 1) ** 2
    return problem.constants.num_parameters * float(s.weight_ranges[client]) ** 2 / (4 * (2**bits - 1) ** 2)


def own(problem: Problem, name: str, client: int) -> float:
    """A constant of one client, which is the same for all or one of a list."""
    values = getattr(problem.constants, name)
    return float(values[client] if hasattr(values, "__len__") else values)


def own_steps(problem: Problem, client: int) -> list[tuple[float, float]]:
    """Frequency and energy per cycle of each step that a client's device has."""
    c = problem.constants
    if c.step_frequencies_hz is None:
        return []
    several = c.step_frequencies_hz.ndim > 1
    rows = [one[client] if several else one for one in (c.step_frequencies_hz, c.step_energies_j)]
    return [(float(f), float(e)) for f, e in zip(*rows, strict=True) if math.isfinite(f)]


def slowest_frequency(problem: Problem, client: int, channel: int, bits: int) -> float | None:
    """S(q), or the step with the least energy that is fast enough; None where the deadline cannot be met at all."""
    c = problem.constants
    rate = float(problem.rates_bps[client, channel])
    if rate <= 0:
        return None
    left = c.deadline_s - payload(problem, client, bits) / rate
    if left <= 0:
        return None
    needed = c.local_epochs * own(problem, "cycles_per_sample", client) * float(problem.dataset_sizes[client]) / left
    steps = own_steps(problem, client)
    if steps:
        fast_enough = [(energy_j, hertz) for hertz, energy_j in steps if hertz >= needed]
        return min(fast_enough)[1] if fast_enough else None
    frequency = max(own(problem, "frequency_min_hz", client), needed)
    return frequency if frequency <= own(problem, "frequency_max_hz", client) else None


def energy(problem: Problem, client: int, channel: int, bits: int, frequency: float) -> float:
    c = problem.constants
    cycles = c.local_epochs * own(problem, "cycles_per_sample", client) * float(problem.dataset_sizes[client])
    steps = dict(own_steps(problem, client))
    compute = cycles * (steps[frequency] if steps else own(problem, "energy_coefficient", client) * frequency**2)
    upload_s = payload(problem, client, bits) / float(problem.rates_bps[client, channel])
    radio_w = own(problem, "transmit_power_w", client) + own(problem, "circuit_power_w", client)
    return compute + radio_w * upload_s


def objective(problem: RoundProblem, channels: list[int], bits: list[int]) -> float:
    """J of P2 for one decision; infinite if it breaks C4 or C5."""
    c, s = problem.constants, problem.observation.statistics
    eta, smooth, tau = c.learning_rate, c.smoothness, c.local_updates
    a1 = 2 * eta**2 * smooth**2 * (2 * tau**3 - 3 * tau**2 + tau) / (3 - 6 * eta**2 * smooth**2 * tau**2)
    a2 = eta * smooth * tau + eta**2 * smooth**2 * (tau**2 - tau) / (1 - 2 * eta**2 * smooth**2 * tau**2)
    everybody = sum(float(d) for d in s.dataset_sizes)
    present = sum(float(s.dataset_sizes[i]) for i, channel in enumerate(channels) if channel >= 0)
    data = error = spent = 0.0
    for i, channel in enumerate(channels):
        size, g2, s2 = float(s.dataset_sizes[i]), float(s.gradient_norms_sq[i]), float(s.gradient_variances[i])
        if channel < 0:
            data += 4 * tau * g2
            continue
        weight = size / present
        data += 4 * tau * (1 - size / everybody) * g2 + a1 * weight * g2 + a2 * weight * s2
        error += weight * smooth / 2 * error_bound(problem, i, bits[i])
        frequency = slowest_frequency(problem, i, channel, bits[i])
        if frequency is None:
            return math.inf
        spent += energy(problem, i, channel, bits[i], frequency)
    return (
        (problem.participation_queue - c.data_budget) * data
        + (problem.quantization_queue - c.quantization_budget) * error
        + c.energy_weight * spent
    )


def best_bits(problem: RoundProblem, client: int, channel: int, total: float, most: int = 32) -> tuple[int, float]:
    """The whole number of bits with the least J3 for one pair when S = total, and that J3; (0, inf) if infeasible."""
    c, s = problem.constants, problem.observation.statistics
    pressure = problem.quantization_queue - c.quantization_budget
    best = (0, math.inf)
    for bits in range(1, most + 1):
        frequency = slowest_frequency(problem, client, channel, bits)
        if frequency is None:
            break
        weight = float(s.dataset_sizes[client]) / total
        error = weight * c.smoothness / 2 * error_bound(problem, client, bits)
        value = pressure * error + c.energy_weight * energy(problem, client, channel, bits, frequency)
        if value < best[1]:
            best = (bits, value)
    return best


def optimum(problem: RoundProblem, most_bits: int) -> float:
    """The least J over every allocation and all bits up to `most_bits`."""
    best = math.inf
    for channels in allocations(problem):
        choices = [range(1, most_bits + 1) if channel >= 0 else (0,) for channel in channels]
        for bits in itertools.product(*choices):
            best = min(best, objective(problem, channels, list(bits)))
    return best


def allocations(problem: Problem) -> Iterator[list[int]]:
    """Every way to give channels to clients, -1 for none; no channel has two clients."""
    num_clients, num_channels = problem.rates_bps.shape
    for channels in itertools.product(range(-1, num_channels), repeat=num_clients):
        used = [channel for channel in channels if channel >= 0]
        if len(used) == len(set(used)):
            yield list(channels)


def most_participants(problem: Problem) -> int:
    """The largest number of clients that can upload one bit per parameter at once."""
    return max(sum(channel >= 0 for channel in channels) for channels in feasible_allocations(problem))


def feasible_allocations(problem: Problem) -> Iterator[list[int]]:
    """Every allocation in which each participant can upload one bit per parameter."""
    num_clients, num_channels = problem.rates_bps.shape
    usable = {
        (i, c)
        for i in range(num_clients)
        for c in range(num_channels)
        if slowest_frequency(problem, i, c, 1) is not None
    }
    for channels in allocations(problem):
        if all(channel < 0 or (i, channel) in usable for i, channel in enumerate(channels)):
            yield channels


def expected_error(problem: Problem, client: int, bits: int) -> float:
    """e(q): the codec's own, or Lemma 1."""
    listed = problem.observation.statistics.upload_errors
    return error_bound(problem, client, bits) if listed is None else float(listed[client, bits - 1])


def scale_free_cost(problem: ScaleFreeProblem, channels: list[int], bits: list[int]) -> float:
    """Energy and error of one decision, without the price of missing participants; infinite if infeasible."""
    sizes = problem.observation.statistics.dataset_sizes
    present = sum(float(sizes[i]) for i, channel in enumerate(channels) if channel >= 0)
    value = 0.0
    for i, channel in enumerate(channels):
        if channel < 0:
            continue
        frequency = slowest_frequency(problem, i, channel, bits[i])
        if frequency is None:
            return math.inf
        weight = float(sizes[i]) / present
        value += problem.energy_price * energy(problem, i, channel, bits[i], frequency)
        value += problem.error_price * weight**2 * expected_error(problem, i, bits[i])
    return value


def scale_free_optimum(problem: ScaleFreeProblem, most_bits: int = 32) -> float:
    """The least cost with which every client is served. That all take part is a constraint here, not a price.

    The weights are known, so each client's bits are tried alone.
    """
    best = math.inf
    for channels in feasible_allocations(problem):
        if min(channels) < 0:
            continue
        bits = [1] * len(channels)
        for i in range(len(channels)):
            values = [
                scale_free_cost(problem, channels, [*bits[:i], q, *bits[i + 1 :]]) for q in range(1, most_bits + 1)
            ]
            bits[i] = 1 + values.index(min(values))
        best = min(best, scale_free_cost(problem, channels, bits))
    return best


def least_error(problem, members: list[int]) -> float:
    """The least error of the aggregate of these clients, over all channels, with as many bits as they carry."""
    sizes = [float(problem.dataset_sizes[i]) for i in members]

    def at_most(client: int, channel: int) -> float:
        fitting = [q for q in range(1, 33) if slowest_frequency(problem, client, channel, q) is not None]
        return expected_error(problem, client, max(fitting)) if fitting else math.inf

    return min(
        sum((d / sum(sizes)) ** 2 * at_most(i, c) for i, c, d in zip(members, channels, sizes, strict=True))
        for channels in itertools.permutations(range(problem.rates_bps.shape[1]), len(members))
    )
