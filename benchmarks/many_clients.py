"""Memory and time of rounds with a thousand clients, a hundred of which participate.

Run: python -m benchmarks.many_clients [--rounds 3] [--codec NAME]
"""

import argparse
import resource

import numpy as np

from benchmarks.peers.stopwatch import Stopwatch
from qccf.learning.datasets import Dataset
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario
from qccf.settings.schema import DEFAULT_CODEC

CLIENTS, PARTICIPANTS, SAMPLES = 1000, 100, 60


def dataset() -> Dataset:
    """Random noise, because only time and memory are measured."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (CLIENTS * SAMPLES + 1000, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 62, len(images))
    train = slice(0, CLIENTS * SAMPLES)
    names = tuple(str(k) for k in range(62))
    return Dataset(
        "noise", images[train], labels[train], None, images[-1000:], labels[-1000:], names, True, "random noise"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codec", default=DEFAULT_CODEC)
    options = parser.parse_args()
    rounds = options.rounds
    scenario = load_scenario(
        "femnist",
        [
            f"federation.num_clients={CLIENTS}",
            f"radio.num_channels={PARTICIPANTS}",
            f"federation.rounds={rounds}",
            f"data.dataset_size_mean={SAMPLES}",
            "data.dataset_size_std=0.0",
            "data.dataset_size_min=10",
            "data.partition=iid",
            "device.cycles_per_sample=2e4",
            f"codec.name={options.codec}",
        ],
    )
    watch = Stopwatch()
    seconds: list[float] = []
    run = simulate(scenario, "principle", dataset=dataset(), callbacks=[lambda p: seconds.append(p.round_seconds)])
    trained = watch.training()
    memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    present = int(run.rounds["participants"].mean())
    print(f"{CLIENTS} clients, {present} participants, codec {options.codec}, {rounds} rounds")
    print(f"round {np.median(seconds):.2f} s, of which training {np.median(trained) / np.median(seconds):.1%}")
    print(f"peak memory {memory_gib:.2f} GiB")


if __name__ == "__main__":
    main()
