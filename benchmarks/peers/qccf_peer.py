"""This project's simulator on the same work, with a policy in which all clients participate. Prints JSON.

"Not training" is the whole round except the local updates; encoding does not count as training.
"""

import json
import sys

import numpy as np
import work
from stopwatch import Stopwatch

from qccf.learning.datasets import Dataset
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario


def dataset() -> Dataset:
    images, labels = zip(*(work.client_data(client) for client in range(work.CLIENTS)), strict=True)
    grey = (np.concatenate([part.numpy() for part in images])[:, 0] * 255).astype(np.uint8)
    answers = np.concatenate([part.numpy() for part in labels])
    names = tuple(str(k) for k in range(62))
    return Dataset("noise", grey, answers, None, grey[:1000], answers[:1000], names, True, "random noise")


def main(rounds: int, precision: str) -> None:
    scenario = load_scenario(
        "femnist",
        [
            f"federation.rounds={rounds + 1}",
            f"federation.num_clients={work.CLIENTS}",
            "data.dataset_size_std=0.0",
            "data.partition=iid",
            f"learning.batch_size={work.BATCH}",
            f"execution.precision={precision}",
        ],
    )
    watch = Stopwatch()
    seconds: list[float] = []
    run = simulate(scenario, "principle", dataset=dataset(), callbacks=[lambda p: seconds.append(p.round_seconds)])
    if run.rounds["arrived"].min() < work.CLIENTS:
        sys.exit("not all clients participated")
    overhead = 1.0 - sum(watch.training()[1:]) / sum(seconds[1:])
    print(json.dumps({"seconds": seconds[1:], "share_not_training": overhead}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
