"""Error of the forecast upload sizes: what each client forecast, compared with its next upload.

Run: python -m benchmarks.forecasts DIR…        folders of `qccf run` or `qccf compare`
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from qccf.settings.loading import load_scenario


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    found = sorted({path.parent for folder in parser.parse_args().folders for path in folder.rglob("clients.parquet")})
    ratios: dict[tuple[str, int], list[float]] = {}
    for folder in found:
        codec = load_scenario(folder / "scenario.toml").codec
        uploads = pd.read_parquet(folder / "clients.parquet").query("participated and num_bits <= 32")
        if codec.name.endswith("entropy"):
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


if __name__ == "__main__":
    main()
