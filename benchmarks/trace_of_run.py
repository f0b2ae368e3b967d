"""Write the statistics that a training run measured as a trace, which plans replay in other cells.

Run: python -m benchmarks.trace_of_run RUN OUT.csv
The trace has one row per round and client: gradients, the range of the weights, and the loss before local training.

docs/results/emnist-statistics.csv comes from the run of

    qccf run femnist --policy qccf --codec model --rounds 100 --set control.form=paper --set data.dataset=emnist \
      --set data.dataset_size_mean=160 --set data.dataset_size_std=40 --set data.dataset_size_min=14 \
      --set device.cycles_per_sample=7500 --set evaluation.every=100 --out runs/emnist-statistics
"""

import argparse
from pathlib import Path

import numpy as np

from qccf.core.files import write_text_whole
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.sources import TRACE_COLUMNS, RecordedStatistics


def trace_text(run: Run, digits: int = 5) -> str:
    """What the server knew of each client at the start of each round, as CSV."""
    source = RecordedStatistics(run)
    data, training = run.scenario.data, run.scenario.learning
    lines = [
        f"# {run.summary.get('data', data.dataset)}; {len(run.dataset_sizes)} clients, {data.dataset_size_mean:g} "
        f"samples each on average, model {training.model}, seed {run.seed}, policy {run.policy}, codec {run.codec}",
        ",".join(("round", "client", *TRACE_COLUMNS)),
    ]
    for number in range(run.num_rounds):
        known = source.known(number)
        columns = (known.gradient_norms_sq, known.gradient_variances, known.weight_ranges, source.losses(number))
        for client, values in enumerate(np.stack(columns, axis=1)):
            lines.append(f"{number},{client}," + ",".join(f"{value:.{digits}g}" for value in values))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("out", type=Path, help="the trace")
    options = parser.parse_args()
    write_text_whole(options.out, trace_text(read_run(options.run)))
    print(f"Written: {options.out}, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
