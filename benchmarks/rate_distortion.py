"""Bits per parameter and relative error of every codec, beside the least error that any unbiased code can have.

Run: python -m benchmarks.rate_distortion [--out docs/images/codec-rates.png]

The relative error is the squared error divided by the squared norm of the vector. For independent Gaussian values a
code with R bits per value errs by at least 2^(-2R) of the variance. Scaled so that it is unbiased, it errs by
D(R) = 1/(2^(2R) - 1).
"""

import argparse
from pathlib import Path

import numpy as np

from qccf.quantization.protocol import Vector
from qccf.quantization.registry import CODECS, build_codec
from qccf.reports.figures.chart import Chart, Panel, Series
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import Styles
from support.vectors import layered_vector

LAYERS = [800, 32, 51_200, 64, 194_432, 62]
COUNT = sum(LAYERS)
BITS = range(1, 9)
LINE = "D(R)"

Points = dict[str, list[tuple[float, float]]]


def least_error(bits_per_value: np.ndarray | float) -> np.ndarray | float:
    """D(R) = 1/(2^(2R) - 1)."""
    return 1.0 / np.expm1(2.0 * np.log(2.0) * np.asarray(bits_per_value))


def measured(vector: Vector, draws: int = 4) -> Points:
    """(bits per value, relative error) of each codec for q = 1 to 8, means over some draws of the rounding."""
    exact = vector.astype(np.float64)
    norm_sq = float(exact @ exact)
    points: Points = {}
    for name in CODECS:
        codec = build_codec(name, len(vector), LAYERS)
        for num_bits in BITS:
            payloads = [codec.encode(vector, num_bits, key) for key in range(draws)]
            errors = [np.square(codec.decode(payload, num_bits) - exact).sum() for payload in payloads]
            sizes = [codec.size_bits(payload) / len(vector) for payload in payloads]
            points.setdefault(name, []).append((float(np.mean(sizes)), float(np.mean(errors)) / norm_sq))
    return points


def show(title: str, points: Points) -> None:
    print(f"\n{title}\n\n| codec | q | bits per parameter | relative error | error / D(R) |")
    print("|---|---|---|---|---|")
    for name, found in points.items():
        for num_bits, (rate, error) in zip(BITS, found, strict=True):
            if num_bits in (1, 2, 3, 4, 6, 8):
                print(f"| {name} | {num_bits} | {rate:.3f} | {error:.3g} | {error / least_error(rate):.1f} |")


def chart(vectors: dict[str, Points]) -> Chart:
    styles = Styles()
    panels = []
    for letter, (title, points) in zip("abc", vectors.items(), strict=False):
        together: dict[tuple[tuple[float, float], ...], list[str]] = {}
        for name, found in points.items():  # a codec of updates does the same to a given vector as one of models
            together.setdefault(tuple(found), []).append(name)
        series = [
            Series(names[-1], *np.array(found).T, styles.codecs[names[-1]].colour, styles.codecs[names[-1]].marker)
            for found, names in together.items()
        ]
        rates = np.geomspace(0.01, 10.0, 80)
        series.append(Series(LINE, rates, least_error(rates), "#000000", "", dotted=True))
        heading = f"({letter}) {title}"
        panels.append(
            Panel(heading, "bits per parameter", "squared error / squared norm", tuple(series), x_log=True, y_log=True)
        )
    caption = (
        "One mark per q = 1 to 8, from left to right. Codecs of models do to a given vector what those of updates do. "
        "Dotted: no unbiased code errs less, if values are Gaussian."
    )
    return Chart("codec-rates", "Bits and errors of the codecs", caption, tuple(panels), panel_size_inch=(4.6, 3.8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="draw the figure into this file")
    out = parser.parse_args().out
    gaussian = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
    vectors = {
        "Gaussian values": measured(gaussian),
        "Laplace values, each layer with its width": measured(layered_vector(LAYERS)),
    }
    for title, points in vectors.items():
        show(title, points)
    if out is not None:
        save_chart(chart(vectors), out)
        print(f"\nWritten: {out}")


if __name__ == "__main__":
    main()
