"""Forecasts of clients: upload sizes compared with their next upload, and expected errors compared with the bound.

Run: python -m benchmarks.forecasts DIR…        folders of `qccf run` or `qccf compare`
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from qccf.quantization.costs import error_bound_table
from qccf.settings.loading import load_scenario

SHOWN_BITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


def sizes_table(found: list[Path]) -> None:
    """How far the size of an upload is from the one that the client forecast."""
    ratios: dict[tuple[str, int], list[float]] = {}
    for folder in found:
        codec = load_scenario(folder / "scenario.toml").codec
        uploads = pd.read_parquet(folder / "clients.parquet").query("participated and num_bits <= 32")
        if codec.name.endswith(("entropy", "sparse")):
            forecast = uploads["expected_bits"] / (1.0 + codec.safety_margin)
            for num_bits, ratio in zip(uploads["num_bits"], uploads["payload_bits"] / forecast, strict=True):
                ratios.setdefault((codec.name, int(num_bits)), []).append(ratio)
    print("| codec | q | uploads | mean error (%) | 95 % | largest | largest underestimate | within 3 % |")
    print("|---|---|---|---|---|---|---|---|")
    for (name, num_bits), values in sorted(ratios.items()):
        errors = 100.0 * (np.array(values) - 1.0)
        size = np.abs(errors)
        print(
            f"| {name} | {num_bits} | {len(errors):,} | {size.mean():.2f} | {np.quantile(size, 0.95):.2f} "
            f"| {size.max():.2f} | {max(errors.max(), 0.0):.2f} | {(size <= 3.0).mean():.1%} |"
        )


def errors_table(found: list[Path]) -> None:
    """The bound c/(2^q - 1)² and the expected squared error of the vectors that clients uploaded, as medians.

    The last column is how much the error changed until the client's next upload: decisions use the last one known.
    """
    known: dict[str, list[pd.DataFrame]] = {}
    for folder in found:
        path = folder / "statistics.parquet"
        if path.exists() and "upload_errors" in (table := pd.read_parquet(path)):
            table["run"] = str(folder)
            known.setdefault(load_scenario(folder / "scenario.toml").codec.name, []).append(table)
    print("| codec | q | vectors | bound | expected error | bound / error | change to the next upload (%) |")
    print("|---|---|---|---|---|---|---|")
    for name, tables in sorted(known.items()):
        table = pd.concat(tables).query("round > 0").sort_values(["run", "client", "round"])
        errors, client = np.stack(list(table["upload_errors"])), table.groupby(["run", "client"]).ngroup().to_numpy()
        new = np.append(True, (errors[1:, 0] != errors[:-1, 0]) | (client[1:] != client[:-1]))
        errors, client, bounds = errors[new], client[new], error_bound_table(table["error_scale"].to_numpy()[new, None])
        same = client[1:] == client[:-1]
        for q in SHOWN_BITS:
            error, bound = errors[:, q - 1], bounds[:, q - 1]
            change = 100.0 * np.abs(error[1:] / error[:-1] - 1.0)[same]
            print(
                f"| {name} | {q} | {len(error):,} | {np.median(bound):.3g} | {np.median(error):.3g} "
                f"| {np.median(bound / error):.2f} | {np.median(change):.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    found = sorted({path.parent for folder in parser.parse_args().folders for path in folder.rglob("clients.parquet")})
    sizes_table(found)
    print()
    errors_table(found)


if __name__ == "__main__":
    main()
