"""One whole round in plain loops: what `qccf.rounds.round` does, with nothing hidden.

Reads from top to bottom: observe, decide, train, quantize, aggregate, settle. A test shows that it ends
with the same model and energy as the fast path.
"""

import numpy as np
import torch
from torch.nn import functional

from qccf import Constants, Scenario, Statistics, build_policy, build_world
from qccf.core.streams import key, stream
from qccf.learning.datasets import Dataset
from qccf.learning.models.registry import build_model
from qccf.learning.partition import partition


def luck(j: int, chance: int) -> float:
    """A number from 0 to 1 for value j: a hash of j and of the round's key, in arithmetic of 64 and of 32 bits."""
    wide, narrow = 2**64 - 1, 2**32 - 1
    x = (chance + 0x9E3779B97F4A7C15) & wide
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wide
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wide
    x ^= x >> 31
    y = (j * 0x9E3779B9 + (x & narrow)) & narrow
    y = (((y ^ (y >> 16)) * 0x85EBCA6B) & narrow) ^ (x >> 32)
    y = ((y ^ (y >> 15)) * 0xC2B2AE35) & narrow
    return (y ^ (y >> 16)) / 2**32


def one_round(scenario: Scenario, dataset: Dataset, statistics: Statistics, state: dict, seed: int, n: int) -> dict:
    """The model, the energy of each client and the policy's state after round `n` from the initial model."""
    c: Constants = scenario.constants()
    world = build_world(scenario, seed)
    policy = build_policy("qccf", scenario)
    global_model = build_model(scenario.learning.model, seed)
    shares = partition(
        dataset.train_labels,
        dataset.train_writers,
        world.dataset_sizes.astype(int),
        method=scenario.data.partition,
        dirichlet_alpha=scenario.data.dirichlet_alpha,
        seed=seed,
    )

    # 1 and 2: the server sees the rates and decides.
    observation = world.observe(n, statistics)
    decision = policy.decide(state, observation, stream(seed, "policy", n))

    uploads, weights_of, energy_j = [], [], np.zeros(len(shares))
    for i, share in enumerate(shares):
        if decision.channels[i] < 0:
            continue

        # 3: the client starts from the global model and takes τ steps of mini-batch SGD.
        model = build_model(scenario.learning.model, seed)
        model.load_state_dict(global_model.state_dict())
        rng = stream(seed, "batches", i, n)
        steps_an_epoch = c.local_updates // c.local_epochs  # as in the presets: the same in every epoch
        for _ in range(c.local_epochs):
            for batch in np.array_split(rng.permutation(len(share)), steps_an_epoch):
                images = torch.from_numpy(dataset.train_images[share[batch]]).float().unsqueeze(1) / 255.0
                labels = torch.from_numpy(dataset.train_labels[share[batch]])
                model.zero_grad()
                functional.cross_entropy(model(images), labels).backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= c.learning_rate * parameter.grad

        # 4: each weight goes up as a sign and one of 2^q - 1 + 1 knobs, rounded at random.
        values = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy().astype(np.float64)
        q, largest = int(decision.num_bits[i]), np.abs(values).max()
        chance = key(seed, "quantization", i, n)
        received = []
        for j, value in enumerate(values):
            place = abs(value) * (2**q - 1) / largest
            knob = int(place) + (luck(j, chance) >= 1.0 - (place - int(place)))
            received.append(np.sign(value) * knob * largest / (2**q - 1))
        uploads.append(np.array(received))
        weights_of.append(len(share))

        # The bill: computing at the frequency that was set, and transmitting ℓ bits.
        rate = observation.rates_bps[i, decision.channels[i]]
        cycles = c.local_epochs * c.cycles_per_sample * len(share)
        energy_j[i] = c.energy_coefficient * cycles * decision.frequencies_hz[i] ** 2
        energy_j[i] += c.transmit_power_w * (c.num_parameters * (q + 1) + 32) / rate

    # 5: the average, weighted by data.
    average = sum(w * upload for w, upload in zip(weights_of, uploads, strict=True)) / sum(weights_of)
    return {"weights": average, "energy_j": energy_j, "decision": decision}
