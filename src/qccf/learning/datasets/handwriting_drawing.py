"""Drawing of handwriting-like characters from the fonts that Matplotlib ships.

Each writer mixes a few fonts and has its own style. A glyph is stored as two fields over a small square: the distance
to its outline and the distance to its centre line. A writer's pen is a threshold on a blend of both fields, so the
stroke width is free to choose. Slant, size, wobble and elastic distortion together are one map from the pixels of the
image into that square, so each pixel needs one bilinear look-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from qccf.core.errors import DataError
from qccf.core.streams import stream
from qccf.learning.datasets.base import CHARACTERS

Floats = NDArray[np.float32]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic",
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralBolIta", "STIXGeneralItalic", "cmmi10", "cmr10", "cmss10",
    "cmti10", "cmtt10",
)  # fmt: skip
SIDE = 28

_SQUARE = 64  # side of a glyph's fields
_SPAN = 44  # longer side of a glyph within its square; the rest is margin for thick strokes
_KNOTS = 7  # control points of a smooth displacement on each axis


@dataclass(frozen=True)
class _Alphabet:
    """The 62 glyphs of one font. Distances are in cells of the square."""

    outlines: Floats  # [62, square, square], negative inside the ink
    centre_lines: Floats  # [62, square, square], zero on the skeleton
    sizes: Floats  # [62] longer side of the glyph's box / height of a capital
    rises: Floats  # [62] height of the box's centre above that of a capital / height of a capital


@dataclass(frozen=True)
class _Style:
    """The style of one writer, the same for all its samples. Lengths are in pixels of the image."""

    fields: Floats  # [62, square, square] distance to the edge of the stroke, negative in the ink
    sizes: Floats  # [62] longer side of each character
    rises: Floats  # [62] height of each character above the middle of a capital
    wobbles: Floats  # [62, 2, knots, knots] displacement of the writer's characters from the font's
    slant: float
    aspect: float  # width / height, relative to the font
    rotation: float  # radians
    unsteadiness: float  # scale of all variation between samples
    softness: float  # width of the grey edge of a stroke
    class_probabilities: NDArray[np.float64]  # [62]


def draw_writers(writers: Sequence[int], samples_per_writer: int, seed: int) -> tuple[Images, Labels, Labels]:
    """Images [n, 28, 28], labels [n] and writers [n], with n = writers × samples.

    A writer's samples depend only on the seed and the writer's number, not on the other writers or their order. Fewer
    samples are the first of more samples. (Other versions of NumPy, SciPy or Matplotlib may round a pixel differently.)
    """
    images = np.empty((len(writers), samples_per_writer, SIDE, SIDE), dtype=np.uint8)
    labels = np.empty((len(writers), samples_per_writer), dtype=np.int64)
    for row, writer in enumerate(map(int, writers)):
        images[row], labels[row] = _write(_style(seed, writer), samples_per_writer, seed, writer)
    ids = np.repeat(np.asarray(writers, dtype=np.int64), samples_per_writer)
    return images.reshape(-1, SIDE, SIDE), labels.reshape(-1), ids


def _style(seed: int, writer: int) -> _Style:
    """The style of a writer.

    The ranges were chosen for legible characters and so that the paper's network reaches 70 to 90 % on unseen writers.
    As in size-normalised handwriting, a capital is only a little larger than a small letter, so no network can
    distinguish all classes (o, O and 0; s and S).
    """
    rng = stream(seed, "handwriting", "hand", writer)
    num_classes = len(CHARACTERS)
    fonts = rng.choice(len(FONTS), size=3, replace=False)
    fonts_of_classes = fonts[rng.choice(3, size=num_classes, p=(0.6, 0.25, 0.15))]
    alphabets = [_alphabet(FONTS[font]) for font in fonts_of_classes]
    pen_share = np.float32(rng.beta(6.0, 0.7))  # 1: constant stroke width, 0: the stroke widths of the font
    half_width, outline_shift = np.float32(rng.uniform(0.95, 1.7)), np.float32(rng.uniform(-0.3, 0.6))
    case_kept, size = rng.uniform(0.05, 0.5), rng.uniform(18.0, 22.5)

    relative_sizes = np.array([alphabet.sizes[label] for label, alphabet in enumerate(alphabets)], dtype=np.float32)
    sizes = np.float32(size) * np.clip(relative_sizes, 0.5, 1.25) ** np.float32(case_kept)
    rises = np.array([alphabet.rises[label] for label, alphabet in enumerate(alphabets)], dtype=np.float32)
    centre_lines = np.stack([alphabet.centre_lines[label] for label, alphabet in enumerate(alphabets)])
    outlines = np.stack([alphabet.outlines[label] for label, alphabet in enumerate(alphabets)])
    pixels = (sizes / np.float32(_SPAN))[:, None, None]  # pixels of the image per cell of the square
    fields = pen_share * (centre_lines * pixels - half_width) + (1 - pen_share) * (outlines * pixels - outline_shift)
    wobbles = rng.standard_normal((num_classes, 2, _KNOTS, _KNOTS), dtype=np.float32)
    return _Style(
        fields=fields,
        sizes=sizes,
        rises=rises * np.float32(size * case_kept),
        wobbles=wobbles * np.float32(rng.uniform(0.9, 2.2)),
        slant=float(np.clip(rng.normal(0.1, 0.22), -0.25, 0.4)),  # beyond these limits an italic font is not legible
        aspect=float(np.exp(rng.normal(0.0, 0.15))),
        rotation=rng.normal(0.0, 0.08),
        unsteadiness=rng.uniform(0.6, 1.5),
        softness=rng.uniform(0.8, 1.5),
        class_probabilities=rng.dirichlet(np.full(num_classes, 2.0)),
    )


def _write(style: _Style, samples: int, seed: int, writer: int) -> tuple[Images, Labels]:
    """The first samples of a writer and their labels."""

    def draws(name: str, *shape: int) -> Floats:
        # One stream per quantity, so that more samples do not change the first ones.
        return stream(seed, "handwriting", name, writer).standard_normal((samples, *shape), dtype=np.float32)

    choices = stream(seed, "handwriting", "labels", writer).random(samples)
    labels = np.searchsorted(np.cumsum(style.class_probabilities)[:-1], choices, side="right").astype(np.int64)
    shakes = np.float32(style.unsteadiness) * draws("shake", 7)
    bends = style.wobbles[labels] + np.float32(style.unsteadiness) * draws("elastic", 2, _KNOTS, _KNOTS)
    columns, rows = _pixels_in_square(style, labels, shakes, _smooth(bends))
    distances = _bilinear(style.fields, labels, columns, rows)
    pressures = 0.12 * shakes[:, 5, None, None] + 0.12 * _smooth(draws("pressure", _KNOTS, _KNOTS))
    softness = np.float32(style.softness) * np.exp(0.15 * shakes[:, 6, None, None])
    ink = np.clip(0.5 + (pressures - distances) / softness, 0, 1)
    ink *= ink * (3 - 2 * ink)  # smooth step: a blurred edge
    ink *= 1 + np.float32(0.06) * draws("grain", SIDE, SIDE)  # the background stays 0
    return np.rint(255 * np.clip(ink, 0, 1)).astype(np.uint8), labels


def _pixels_in_square(style: _Style, labels: Labels, shake: Floats, bend: Floats) -> tuple[Floats, Floats]:
    """The place of each pixel of each image in the glyph's square: columns and rows, [n, 28, 28]."""
    axis = np.arange(SIDE, dtype=np.float32) - np.float32((SIDE - 1) / 2)
    x = axis[None, None, :] + bend[:, 0] - 0.6 * shake[:, 0, None, None]
    y = axis[None, :, None] + bend[:, 1] - 0.6 * shake[:, 1, None, None] + style.rises[labels][:, None, None]
    angle = np.float32(style.rotation) + 0.06 * shake[:, 2]
    slant = np.float32(style.slant) + 0.06 * shake[:, 3]
    stretch = np.exp(0.06 * shake[:, 4]) * np.float32(np.sqrt(style.aspect))
    unit = np.float32(_SPAN) / style.sizes[labels]
    cosine, sine = np.cos(angle), np.sin(angle)
    xx, xy = unit / stretch * (cosine + slant * -sine), unit / stretch * (sine + slant * cosine)
    yx, yy = -unit * stretch * sine, unit * stretch * cosine
    middle = np.float32((_SQUARE - 1) / 2)
    column = xx[:, None, None] * x + xy[:, None, None] * y + middle
    row = yx[:, None, None] * x + yy[:, None, None] * y + middle
    return column, row


def _bilinear(fields: Floats, labels: Labels, column: Floats, row: Floats) -> Floats:
    """The fields of the labels at fractional places. Beyond the square the values of its edge are used."""
    limit = np.float32(_SQUARE - 1.001)  # so that the cells to the right and below always exist
    column, row = np.clip(column, np.float32(0), limit), np.clip(row, np.float32(0), limit)
    left, top = np.floor(column), np.floor(row)
    right_share, bottom_share = column - left, row - top
    corner = labels[:, None, None] * _SQUARE**2 + (top * _SQUARE + left).astype(np.int64)
    flat = fields.reshape(-1)
    above = flat[corner] * (1 - right_share) + flat[corner + 1] * right_share
    below = flat[corner + _SQUARE] * (1 - right_share) + flat[corner + _SQUARE + 1] * right_share
    return above + (below - above) * bottom_share


def _smooth(knots: Floats) -> Floats:
    """A smooth surface [..., 28, 28] over control points [..., knots, knots]."""
    basis = _spline_basis()
    # One product per matrix: the rounding of one large product could depend on the number of samples.
    return np.matmul(np.matmul(basis, knots), basis.T, dtype=np.float32)


@lru_cache(maxsize=1)
def _spline_basis() -> Floats:
    """[28, knots]: the uniform cubic B-spline, with control points slightly beyond both edges."""
    place = np.linspace(1.0, _KNOTS - 2.0, SIDE)[:, None] - np.arange(_KNOTS)[None, :]
    distance = np.abs(place)
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    return np.where(distance < 1, near, far).astype(np.float32)


@lru_cache(maxsize=len(FONTS))
def _alphabet(font: str) -> _Alphabet:
    """The fields of one font. They take a tenth of a second and are therefore cached."""
    outlines = _outlines(font)
    lows = np.array([np.min(np.concatenate(rings), axis=0) for rings in outlines])
    highs = np.array([np.max(np.concatenate(rings), axis=0) for rings in outlines])
    longer = np.max(highs - lows, axis=1)
    middles = (lows + highs) / 2
    capital = CHARACTERS.index("H")
    height = highs[capital, 1] - lows[capital, 1]
    ink = np.stack(
        [
            _fill([(ring - middle) * (_SPAN / side) + _SQUARE / 2 for ring in rings])[::-1]
            for rings, middle, side in zip(outlines, middles, longer, strict=True)
        ]
    )
    edges, skeleton = _distances(~ink) - _distances(ink), _distances(~_thinned(ink))
    blurred = [ndimage.gaussian_filter(field, (0, 0.8, 0.8)) for field in (edges, skeleton)]
    return _Alphabet(
        outlines=blurred[0].astype(np.float32),
        centre_lines=blurred[1].astype(np.float32),
        sizes=(longer / height).astype(np.float32),
        rises=((middles[:, 1] - middles[capital, 1]) / height).astype(np.float32),
    )


def _outlines(font: str) -> list[list[NDArray[np.float64]]]:
    """The closed polygons [points, 2] of each character, upwards positive."""
    try:
        import matplotlib
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import TextPath
    except ImportError as error:
        raise DataError("handwriting: needs the fonts of Matplotlib: pip install 'qccf[plot]'.") from error
    file = FontProperties(fname=str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"))
    paths = [TextPath((0, 0), character, size=200, prop=file) for character in CHARACTERS]
    return [[np.asarray(ring) for ring in path.to_polygons()] for path in paths]


def _distances(cells: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Distance of each true cell of [n, square, square] to the nearest false cell of the same square."""
    return np.stack([np.asarray(ndimage.distance_transform_edt(square)) for square in cells])


def _fill(rings: list[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """The cells of the square whose centre has a non-zero winding number, rows upwards."""
    turns = np.zeros((_SQUARE, _SQUARE + 1), dtype=np.int64)
    scanlines = np.arange(_SQUARE) + 0.5
    for ring in rings:
        x, y = ring[:, 0], ring[:, 1]
        next_x, next_y = np.roll(x, -1), np.roll(y, -1)
        crossed, edge = np.nonzero((y > scanlines[:, None]) != (next_y > scanlines[:, None]))
        share = (scanlines[crossed] - y[edge]) / (next_y[edge] - y[edge])
        at = x[edge] + share * (next_x[edge] - x[edge])
        first = np.clip(np.ceil(at - 0.5), 0, _SQUARE).astype(np.int64)
        np.add.at(turns, (crossed, first), np.where(next_y[edge] > y[edge], 1, -1))
    return np.cumsum(turns[:, :-1], axis=1) != 0


def _thinned(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The centre lines of the glyphs [n, square, square], by the thinning of Zhang and Suen (1984)."""
    thin = ink.copy()
    while True:
        thicker = thin.copy()
        for first_pass in (True, False):
            framed = np.pad(thin, ((0, 0), (1, 1), (1, 1))).astype(np.uint8)
            # The eight neighbours, clockwise from the north.
            steps = ((0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0), (0, 0))
            around = [framed[:, row : row + _SQUARE, column : column + _SQUARE] for row, column in steps]
            following = around[1:] + around[:1]
            neighbours = sum(around)
            starts = sum(after & ~before for before, after in zip(around, following, strict=True))
            north, east, south, west = around[0], around[2], around[4], around[6]
            if first_pass:
                side = (north & east & south) | (east & south & west)
            else:
                side = (north & east & west) | (north & south & west)
            thin = thin & ~((neighbours >= 2) & (neighbours <= 6) & (starts == 1) & (side == 0))
        if np.array_equal(thicker, thin):
            return thin
