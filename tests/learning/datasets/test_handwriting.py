"""Synthetic handwriting: pixels depend only on seed and writer, writers have a style, the cache is checked."""

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from qccf.core.errors import DataError
from qccf.learning.datasets import handwriting, handwriting_drawing
from qccf.learning.datasets.base import CHARACTERS
from qccf.learning.datasets.handwriting import FIRST_TEST_WRITER, HandwritingSource
from qccf.learning.datasets.handwriting_drawing import FONTS, draw_writers


def small_source() -> HandwritingSource:
    return HandwritingSource(train_writers=3, train_samples=7, test_writers=2, test_samples=5)


def test_images_are_bright_ink_on_a_background_of_zero():
    images, labels, writers = draw_writers([4, 9], 50, seed=1)
    assert images.shape == (100, 28, 28)
    assert (images.dtype, labels.dtype, writers.dtype) == (np.uint8, np.int64, np.int64)
    assert writers.tolist() == [4] * 50 + [9] * 50
    assert 0 <= labels.min() <= labels.max() < len(CHARACTERS)
    ink = images > 127
    assert (images.max(axis=(1, 2)) > 150).all()
    share = ink.mean(axis=(1, 2))
    assert (share > 0.02).all()
    assert (share < 0.5).all()
    # Characters are inside the image: hardly any ink at the border, most pixels empty.
    frame = np.ones((28, 28), dtype=bool)
    frame[2:-2, 2:-2] = False
    assert ink[:, frame].mean() < 0.05
    assert np.mean(images == 0) > 0.5


def test_a_writer_depends_on_seed_and_number_alone():
    images, labels, _ = draw_writers([0, 1, 2], 21, seed=3)
    shuffled, shuffled_labels, _ = draw_writers([2, FIRST_TEST_WRITER, 0], 21, seed=3)
    assert np.array_equal(images[42:], shuffled[:21])
    assert np.array_equal(images[:21], shuffled[42:])
    assert np.array_equal(labels[42:], shuffled_labels[:21])
    fewer, fewer_labels, _ = draw_writers([1], 5, seed=3)
    assert np.array_equal(images[21:26], fewer)
    assert np.array_equal(draw_writers(np.array([1]), 5, seed=3)[0], fewer)
    assert np.array_equal(labels[21:26], fewer_labels)
    assert not np.array_equal(draw_writers([1], 5, seed=4)[0], fewer)
    assert not np.array_equal(images[:21], images[21:42])


def test_every_class_occurs_and_writers_prefer_some():
    num_classes = len(CHARACTERS)
    _, labels, writers = draw_writers(range(30), 120, seed=0)
    counts = np.array([np.bincount(labels[writers == writer], minlength=num_classes) for writer in range(30)])
    assert (counts.sum(axis=0) > 0).all()
    # Even shares would give a chi-square of about 61 per writer; Dirichlet(2) shares add 119 * 61 / 125 to it.
    expected = 120 / num_classes
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1).mean()
    assert chi_square > 90


def test_writers_differ_more_from_each_other_than_from_themselves():
    letter = CHARACTERS.index("R")
    styles = [handwriting_drawing._style(0, writer) for writer in range(8)]
    only = np.zeros(len(CHARACTERS))
    only[letter] = 1.0
    mean_images, spreads = [], []
    for writer, style in enumerate(styles):
        style.class_probabilities[:] = only
        images, labels = handwriting_drawing._write(style, 40, 0, writer)
        assert (labels == letter).all()
        images = images.astype(float)
        mean_images.append((images[:20].mean(axis=0), images[20:].mean(axis=0)))
        spreads.append(images.std(axis=0).mean())
    own = [np.linalg.norm(first - second) for first, second in mean_images]
    others = [
        np.linalg.norm(mean_images[one][0] - mean_images[other][1])
        for one in range(8)
        for other in range(8)
        if one != other
    ]
    assert min(others) > max(own)
    assert min(spreads) > 1.0  # samples of one writer still differ


def test_random_numbers_differ_between_writers():
    style = handwriting_drawing._style(0, 0)
    images, labels = handwriting_drawing._write(style, 40, 0, 0)
    other_images, other_labels = handwriting_drawing._write(style, 40, 0, 1)  # same style, other number
    assert np.mean(labels == other_labels) < 0.3
    assert not (images == other_images).all(axis=(1, 2)).any()


@pytest.mark.parametrize("font", FONTS[::5])
def test_centre_lines_keep_every_stroke(font: str):
    """Thinning keeps the number of parts (the dot of an i) and of holes (the bowl of an o)."""
    alphabet = handwriting_drawing._alphabet(font)
    ink = alphabet.outlines < 0
    thin = handwriting_drawing._thinned(ink)
    eight = np.ones((3, 3))
    for glyph, line in zip(ink, thin, strict=True):
        assert ndimage.label(line, eight)[1] == ndimage.label(glyph, eight)[1]
        assert ndimage.label(~line)[1] == ndimage.label(~glyph)[1]
    assert (thin & ~ink).sum() == 0
    assert thin.sum() < 0.5 * ink.sum()


def test_an_outline_is_filled_by_its_winding_number():
    square = np.array([(10.0, 10.0), (30.0, 10.0), (30.0, 30.0), (10.0, 30.0)])
    hole = np.array([(15.0, 15.0), (15.0, 20.0), (25.0, 20.0), (25.0, 15.0)])  # the opposite orientation
    expected = np.zeros((64, 64), dtype=bool)
    expected[10:30, 10:30] = True
    assert np.array_equal(handwriting_drawing._fill([square, square + 0.0]), expected)  # overlaps stay filled
    expected[15:20, 15:25] = False
    assert np.array_equal(handwriting_drawing._fill([square, hole]), expected)


def test_bilinear_look_up_agrees_with_scipy():
    rng = np.random.default_rng(5)
    fields = rng.standard_normal((3, 64, 64)).astype(np.float32)
    labels = np.array([2, 0])
    column, row = rng.uniform(-3, 67, (2, 2, 28, 28)).astype(np.float32)
    found = handwriting_drawing._bilinear(fields, labels, column, row)
    for sample, label in enumerate(labels):
        expected = ndimage.map_coordinates(fields[label], (row[sample], column[sample]), order=1, mode="nearest")
        assert np.allclose(found[sample], expected, atol=0.02)  # places within 0.001 cells of the far edge are clipped


def test_the_dataset_is_marked_as_synthetic(tmp_path: Path):
    dataset = small_source().load(tmp_path, seed=2)
    assert dataset.name == "handwriting"
    assert dataset.synthetic
    assert "synthetic" in dataset.source
    assert "not real data" in dataset.source
    assert dataset.class_names == CHARACTERS
    assert dataset.train_writers is not None
    assert dataset.train_writers.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    assert np.array_equal(dataset.train_images, draw_writers(range(3), 7, seed=2)[0])
    unseen = draw_writers([FIRST_TEST_WRITER, FIRST_TEST_WRITER + 1], 5, seed=2)
    assert np.array_equal(dataset.test_images, unseen[0])
    assert np.array_equal(dataset.test_labels, unseen[1])


def test_the_cache_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = small_source()
    drawn = source.load(tmp_path, seed=2)
    monkeypatch.setattr(handwriting, "draw_writers", None)  # drawing again would now fail
    cached = source.load(tmp_path, seed=2)
    for name in ("train_images", "train_labels", "train_writers", "test_images", "test_labels"):
        assert np.array_equal(getattr(drawn, name), getattr(cached, name))
        assert getattr(drawn, name).dtype == getattr(cached, name).dtype
    with pytest.raises(TypeError):
        source.load(tmp_path, seed=3)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(bytes(content))


def _swap(path: Path) -> None:
    path.write_bytes(b"not an archive")


def _relabel(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    arrays["train_labels"] = arrays["train_labels"] + 62
    np.savez_compressed(path, **arrays)


def _shorten(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    np.savez_compressed(path, **{name: array[:-1] for name, array in arrays.items()})


def _renumber(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    arrays["train_writers"] = arrays["train_writers"][::-1]
    np.savez_compressed(path, **arrays)


@pytest.mark.parametrize("damage", [_cut, _flip, _swap, _relabel, _shorten, _renumber])
def test_a_damaged_cache_is_drawn_again(tmp_path: Path, damage):
    source = small_source()
    drawn = source.load(tmp_path, seed=2)
    path = source.cache_file(tmp_path, 2)
    assert source.check(tmp_path) == [f"{path}: complete"]
    damage(path)
    assert "drawn again" in source.check(tmp_path)[0]
    again = source.load(tmp_path, seed=2)
    assert np.array_equal(drawn.train_images, again.train_images)
    assert np.array_equal(drawn.train_labels, again.train_labels)
    assert source.check(tmp_path) == [f"{path}: complete"]


def test_fetch_draws_and_check_reports(tmp_path: Path):
    source = small_source()
    assert "no drawing yet" in source.check(tmp_path)[0]
    calls = []
    files = source.fetch(tmp_path, lambda *arguments: calls.append(arguments))
    assert files == [source.cache_file(tmp_path, 0)]
    size = files[0].stat().st_size
    assert calls == [(files[0].name, size, size)]
    assert [path.name for path in files[0].parent.iterdir()] == [files[0].name]  # no temporary file remains


def test_only_fetch_fails_if_the_folder_is_not_writable(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    source = small_source()
    assert len(source.load(blocked, seed=2).train_labels) == 21
    with pytest.raises(DataError, match="cannot be written"):
        source.fetch(blocked, lambda *_: None)
