"""Decode many mutated payloads. Each must be refused or decode to a valid vector; prints how often each happened.

Run: python -m benchmarks.fuzz_wire [--count 1000000] [--seed 0]
"""

import argparse
import time

from qccf.quantization.registry import CODECS
from support.payloads import fuzz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    counts = fuzz(arguments.count, arguments.seed)
    elapsed_s = time.perf_counter() - started
    print(f"{arguments.count:,} mutated payloads of {len(CODECS)} codecs, seed {arguments.seed}, {elapsed_s:.0f} s:\n")
    print("| outcome | payloads |")
    print("|---|---|")
    for name, number in counts.most_common():
        print(f"| {name} | {number:,} |")


if __name__ == "__main__":
    main()
