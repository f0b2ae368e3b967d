"""Handwriting-like characters drawn from fonts: the dataset that needs no download.

Each writer mixes a few of the fonts that Matplotlib ships and writes them with a hand of its own. A glyph is kept as
two fields over a small square: the distance to its outline and the distance to its centre line. A writer's pen is a
threshold on a blend of the two, so its stroke width costs nothing; slant, size, wobble and elastic distortion are all
one map from the pixels of the image into that square. What remains is one bilinear look-up for each pixel.

The images are synthetic. They stand in for FEMNIST where none can be had; their accuracies are not FEMNIST's.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from qccf.core.files import write_whole
from qccf.core.streams import stream
from qccf.learning.datasets.base import CHARACTERS, DataError, Dataset, Progress, checked
from qccf.learning.datasets.npz import read_npz

Floats = NDArray[np.float32]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralBolIta",
    "STIXGeneralItalic",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)
SIDE = 28
SOURCE = "synthetic handwriting drawn from fonts, not real data"
FIRST_TEST_WRITER = 1_000_000  # far above any training writer, so that the two never share a hand
DRAWING_VERSION = 1  # raise it when a change moves any pixel: caches of the old drawing are then left alone

_ARRAYS = ("train_images", "train_labels", "train_writers", "test_images", "test_labels")
_SQUARE = 64  # side of a glyph's fields
_SPAN = 44  # the longer side of a glyph in it; the rest is margin for thick pens
_KNOTS = 7  # control points of a smooth displacement, on each axis


@dataclass(frozen=True)
class _Alphabet:
    """The 62 glyphs of one font; distances are in units of the square."""

    outlines: Floats  # [62, square, square], negative inside the ink
    centre_lines: Floats  # [62, square, square], zero on the skeleton
    sizes: Floats  # [62] longer side of the box over the height of a capital
    rises: Floats  # [62] centre of the box above that of a capital, over the height of a capital


@dataclass(frozen=True)
class _Hand:
    """All that stays the same in what one writer writes. Lengths are in pixels of the image."""

    fields: Floats  # [62, square, square] distance to the edge of the stroke, negative in the ink
    sizes: Floats  # [62] longer side of each character
    rises: Floats  # [62] how far each sits above the middle of a capital
    wobbles: Floats  # [62, 2, knots, knots] how its letters differ from the font's
    slant: float
    aspect: float  # width over height, both relative to the font's
    rotation: float  # radians
    unsteadiness: float  # scale of everything that changes from sample to sample
    softness: float  # width of the grey edge of a stroke
    class_probabilities: NDArray[np.float64]  # [62]


class HandwritingSource:
    """The embedded dataset. Test writers are not among the training writers, as in a test by unseen hands."""

    name = "handwriting"
    description = "Synthetic handwriting: 62 characters 28 × 28 drawn from fonts, any number of writers, no download"

    def __init__(
        self, *, train_writers: int = 200, train_samples: int = 120, test_writers: int = 40, test_samples: int = 100
    ) -> None:
        """How many writers there are, and how many samples each of them writes."""
        counts = (train_writers, train_samples, test_writers, test_samples)
        if min(counts) < 1 or train_writers > FIRST_TEST_WRITER:
            raise DataError(
                f"handwriting: writers and samples are {counts}, but each must be at least 1 and training writers"
                f" at most {FIRST_TEST_WRITER}; choose within these limits."
            )
        self.train_writers, self.train_samples, self.test_writers, self.test_samples = counts

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The drawing that belongs to ``seed``, from the cache where a sound one is there."""
        path = self.cache_file(folder, seed)
        try:
            return self._read(path)
        except DataError:  # not drawn yet, or damaged
            dataset = self._draw(seed)
        with suppress(OSError):  # the cache only saves time: a folder that cannot be written to is no reason to stop
            _save(dataset, path)
        return dataset

    def fetch(self, folder: Path, progress: Progress) -> list[Path]:
        """Nothing is downloaded: the drawing of the default seed 0 is made ready."""
        path = self.cache_file(folder, 0)
        self.load(folder, seed=0)
        if not path.is_file():
            raise DataError(f"{path}: cannot be written; name a folder with room and rights to write.")
        progress(path.name, path.stat().st_size, path.stat().st_size)
        return [path]

    def check(self, folder: Path) -> list[str]:
        """The state of each cached drawing; there is always something usable, as the rest is drawn when needed."""
        lines = []
        for path in sorted(self.cache_file(folder, 0).parent.glob(self._file_name("*"))):
            try:
                self._read(path)
                lines.append(f"{path}: whole")
            except DataError as error:
                lines.append(f"{error} It is drawn again at the next use.")
        return lines or [f"{folder / self.name}: no drawing yet; one is made in seconds at the first use."]

    def cache_file(self, folder: Path, seed: int) -> Path:
        """Where the drawing of ``seed`` is kept: its name holds all that decides its pixels."""
        return folder / self.name / self._file_name(str(seed))

    def _file_name(self, seed: str) -> str:
        train, test = f"{self.train_writers}x{self.train_samples}", f"{self.test_writers}x{self.test_samples}"
        return f"handwriting-v{DRAWING_VERSION}-train{train}-test{test}-seed{seed}.npz"

    def _draw(self, seed: int) -> Dataset:
        test_writers = range(FIRST_TEST_WRITER, FIRST_TEST_WRITER + self.test_writers)
        train_images, train_labels, writers = draw_writers(range(self.train_writers), self.train_samples, seed)
        test_images, test_labels, _ = draw_writers(test_writers, self.test_samples, seed)
        return self._dataset(train_images, train_labels, writers, test_images, test_labels)

    def _read(self, path: Path) -> Dataset:
        """A cached drawing whose every array has the type, the size and the range that drawing would give."""
        arrays = read_npz(path, *_ARRAYS)
        train, test = self.train_writers * self.train_samples, self.test_writers * self.test_samples
        shapes = [(train, SIDE, SIDE), (train,), (train,), (test, SIDE, SIDE), (test,)]
        writers = np.repeat(np.arange(self.train_writers), self.train_samples)
        if [array.shape for array in arrays] != shapes or not np.array_equal(arrays[2], writers):
            raise DataError(f"{path}: is not the drawing that its name promises; delete it.")
        return self._dataset(*arrays)

    def _dataset(self, *arrays: NDArray[Any]) -> Dataset:
        fields = dict(zip(_ARRAYS, arrays, strict=True))
        return checked(Dataset(self.name, **fields, class_names=CHARACTERS, synthetic=True, source=SOURCE))


def _save(dataset: Dataset, path: Path) -> None:
    def write(temporary: Path) -> None:
        np.savez_compressed(temporary, **{name: getattr(dataset, name) for name in _ARRAYS})

    write_whole(path, write)


def draw_writers(writers: Sequence[int], samples_per_writer: int, seed: int) -> tuple[Images, Labels, Labels]:
    """Images [n, 28, 28], labels [n] and writers [n], with n = writers × samples.

    A writer's samples depend on the seed and its number alone: not on the other writers asked for, their order, or
    the number of samples, of which fewer are the first of more. (Another version of NumPy, SciPy or Matplotlib may
    round a pixel differently.)
    """
    if samples_per_writer < 1:
        raise DataError(f"handwriting: {samples_per_writer} samples for each writer; ask for at least 1.")
    images = np.empty((len(writers), samples_per_writer, SIDE, SIDE), dtype=np.uint8)
    labels = np.empty((len(writers), samples_per_writer), dtype=np.int64)
    for row, writer in enumerate(map(int, writers)):  # a NumPy integer names the same writer
        images[row], labels[row] = _write(_hand(seed, writer), samples_per_writer, seed, writer)
    ids = np.repeat(np.asarray(writers, dtype=np.int64), samples_per_writer)
    return images.reshape(-1, SIDE, SIDE), labels.reshape(-1), ids


def _hand(seed: int, writer: int) -> _Hand:
    """The hand of a writer.

    The ranges were set by eye, for legible letters, and by training: the paper's network is to end between 70 and
    90 % on unseen writers. As in size-normalised handwriting, a capital is only a little larger than a small letter,
    which bounds what any network can tell apart (o, O and 0; s and S).
    """
    rng = stream(seed, "handwriting", "hand", writer)
    num_classes = len(CHARACTERS)
    fonts = rng.choice(len(FONTS), size=3, replace=False)
    fonts_of_classes = fonts[rng.choice(3, size=num_classes, p=(0.6, 0.25, 0.15))]
    alphabets = [_alphabet(FONTS[font]) for font in fonts_of_classes]
    pen_share = np.float32(rng.beta(6.0, 0.7))  # 1: one width throughout, 0: the font's thick and thin
    half_width, outline_shift = np.float32(rng.uniform(0.95, 1.7)), np.float32(rng.uniform(-0.3, 0.6))
    case_kept, size = rng.uniform(0.05, 0.5), rng.uniform(18.0, 22.5)

    relative_sizes = np.array([alphabet.sizes[label] for label, alphabet in enumerate(alphabets)], dtype=np.float32)
    sizes = np.float32(size) * np.clip(relative_sizes, 0.5, 1.25) ** np.float32(case_kept)
    rises = np.array([alphabet.rises[label] for label, alphabet in enumerate(alphabets)], dtype=np.float32)
    centre_lines = np.stack([alphabet.centre_lines[label] for label, alphabet in enumerate(alphabets)])
    outlines = np.stack([alphabet.outlines[label] for label, alphabet in enumerate(alphabets)])
    pixels = (sizes / np.float32(_SPAN))[:, None, None]  # pixels of the image in a unit of the square
    fields = pen_share * (centre_lines * pixels - half_width) + (1 - pen_share) * (outlines * pixels - outline_shift)
    wobbles = rng.standard_normal((num_classes, 2, _KNOTS, _KNOTS), dtype=np.float32)
    return _Hand(
        fields=fields,
        sizes=sizes,
        rises=rises * np.float32(size * case_kept),
        wobbles=wobbles * np.float32(rng.uniform(0.9, 2.2)),
        slant=float(np.clip(rng.normal(0.1, 0.22), -0.25, 0.4)),  # beyond, an italic font is no longer legible
        aspect=float(np.exp(rng.normal(0.0, 0.15))),
        rotation=rng.normal(0.0, 0.08),
        unsteadiness=rng.uniform(0.6, 1.5),
        softness=rng.uniform(0.8, 1.5),
        class_probabilities=rng.dirichlet(np.full(num_classes, 2.0)),
    )


def _write(hand: _Hand, samples: int, seed: int, writer: int) -> tuple[Images, Labels]:
    """The first samples of a writer and their labels."""

    def draws(name: str, *shape: int) -> Floats:
        # A stream for each quantity: more samples then extend it and leave the first ones as they were.
        return stream(seed, "handwriting", name, writer).standard_normal((samples, *shape), dtype=np.float32)

    choices = stream(seed, "handwriting", "labels", writer).random(samples)
    labels = np.searchsorted(np.cumsum(hand.class_probabilities)[:-1], choices, side="right").astype(np.int64)
    shakes = np.float32(hand.unsteadiness) * draws("shake", 7)
    bends = hand.wobbles[labels] + np.float32(hand.unsteadiness) * draws("elastic", 2, _KNOTS, _KNOTS)
    columns, rows = _pixels_in_square(hand, labels, shakes, _smooth(bends))
    distances = _bilinear(hand.fields, labels, columns, rows)
    pressures = 0.12 * shakes[:, 5, None, None] + 0.12 * _smooth(draws("pressure", _KNOTS, _KNOTS))
    softness = np.float32(hand.softness) * np.exp(0.15 * shakes[:, 6, None, None])
    ink = np.clip(0.5 + (pressures - distances) / softness, 0, 1)
    ink *= ink * (3 - 2 * ink)  # the smooth step of a blurred edge
    ink *= 1 + np.float32(0.06) * draws("grain", SIDE, SIDE)  # empty paper stays 0
    return np.rint(255 * np.clip(ink, 0, 1)).astype(np.uint8), labels


def _pixels_in_square(hand: _Hand, labels: Labels, shake: Floats, bend: Floats) -> tuple[Floats, Floats]:
    """Where in the glyph's square each pixel of each image lies: columns and rows, [n, 28, 28]."""
    axis = np.arange(SIDE, dtype=np.float32) - np.float32((SIDE - 1) / 2)
    x = axis[None, None, :] + bend[:, 0] - 0.6 * shake[:, 0, None, None]
    y = axis[None, :, None] + bend[:, 1] - 0.6 * shake[:, 1, None, None] + hand.rises[labels][:, None, None]
    angle = np.float32(hand.rotation) + 0.06 * shake[:, 2]
    slant = np.float32(hand.slant) + 0.06 * shake[:, 3]
    stretch = np.exp(0.06 * shake[:, 4]) * np.float32(np.sqrt(hand.aspect))
    unit = np.float32(_SPAN) / hand.sizes[labels]
    cosine, sine = np.cos(angle), np.sin(angle)
    xx, xy = unit / stretch * (cosine + slant * -sine), unit / stretch * (sine + slant * cosine)
    yx, yy = -unit * stretch * sine, unit * stretch * cosine
    middle = np.float32((_SQUARE - 1) / 2)
    column = xx[:, None, None] * x + xy[:, None, None] * y + middle
    row = yx[:, None, None] * x + yy[:, None, None] * y + middle
    return column, row


def _bilinear(fields: Floats, labels: Labels, column: Floats, row: Floats) -> Floats:
    """The fields of the labels at fractional places; beyond the square its edge goes on."""
    limit = np.float32(_SQUARE - 1.001)  # so that the cell to the right and below is always there
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
    # A product for each matrix of the stack: one large product could round differently with the number of samples.
    return np.matmul(np.matmul(basis, knots), basis.T, dtype=np.float32)


@lru_cache(maxsize=1)
def _spline_basis() -> Floats:
    """[28, knots]: the uniform cubic B-spline, its control points a little beyond both edges."""
    place = np.linspace(1.0, _KNOTS - 2.0, SIDE)[:, None] - np.arange(_KNOTS)[None, :]
    distance = np.abs(place)
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    return np.where(distance < 1, near, far).astype(np.float32)


@lru_cache(maxsize=len(FONTS))
def _alphabet(font: str) -> _Alphabet:
    """The fields of one font: a tenth of a second each, so they are kept as long as the program runs."""
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
    """For each character its closed polygons [points, 2], upwards positive."""
    try:
        import matplotlib
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import TextPath
    except ImportError as error:
        raise DataError("handwriting: needs the fonts of Matplotlib; pip install 'qccf[plot]' brings them.") from error
    file = FontProperties(fname=str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"))
    paths = [TextPath((0, 0), character, size=200, prop=file) for character in CHARACTERS]
    return [[np.asarray(ring) for ring in path.to_polygons()] for path in paths]


def _distances(cells: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far each true cell of [n, square, square] is from the nearest false one of its own square."""
    return np.stack([np.asarray(ndimage.distance_transform_edt(square)) for square in cells])


def _fill(rings: list[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """The cells of the square whose centre the rings wind around, rows upwards."""
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
            # North first, then clockwise.
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
