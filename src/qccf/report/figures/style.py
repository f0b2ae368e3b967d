"""One look for every figure: a colour and a marker for each policy, safe for the colour-blind."""

from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure

# Okabe and Ito's palette.
POLICY_STYLES: dict[str, tuple[str, str]] = {
    "qccf": ("#0072B2", "o"),
    "no-quantization": ("#7F7F7F", "x"),
    "channel-allocate": ("#E69F00", "s"),
    "principle": ("#D55E00", "^"),
    "same-size": ("#009E73", "D"),
}
# The same for codecs: a colour for what is coded, a filled marker where it is entropy-coded.
CODEC_STYLES: dict[str, tuple[str, str]] = {
    "model": ("#0072B2", "+"),
    "update": ("#D55E00", "+"),
    "block": ("#E69F00", "x"),
    "update+block": ("#CC79A7", "x"),
    "model+entropy": ("#56B4E9", "o"),
    "update+entropy": ("#009E73", "o"),
    "block+entropy": ("#7F7F7F", "D"),
    "update+block+entropy": ("#000000", "D"),
}
_OTHERS = ("#CC79A7", "#56B4E9", "#F0E442", "#000000")
_OTHER_MARKERS = ("v", "s", "^", "D")


def run_style(label: str, index: int = 0) -> tuple[str, str]:
    """Colour and marker of a policy or codec, or of `policy, codec`; what is not in the tables takes the next free."""
    known = POLICY_STYLES | CODEC_STYLES
    policy, _, codec = label.partition(", ")
    if policy in POLICY_STYLES and codec in CODEC_STYLES:
        return CODEC_STYLES[codec][0], POLICY_STYLES[policy][1]
    turn = index // len(_OTHERS)
    return known.get(label, (_OTHERS[index % len(_OTHERS)], _OTHER_MARKERS[turn % len(_OTHER_MARKERS)]))


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure in the common look and its axes. It belongs to the caller alone: nothing keeps it open."""
    rcParams.update(LOOK)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


LOOK: dict[Any, Any] = {
    "figure.dpi": 110,
    "savefig.bbox": "tight",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts that publishers accept
    "svg.hashsalt": "qccf",  # the same figure is the same file
}
