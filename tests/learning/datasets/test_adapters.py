"""Adapters, with small objects of exactly the form of torchvision's and Hugging Face's."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from qccf.core.errors import DataError
from qccf.learning.datasets.adapters import from_arrays, from_hugging_face, from_torchvision

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]


def test_arrays_of_each_kind() -> None:
    for samples, kind in ((IMAGES, np.uint8), (np.ones((6, 3)), np.float32), (np.ones((6, 3), dtype=int), np.int64)):
        made = from_arrays("own", (samples, LABELS), (samples, LABELS), source="made")
        assert made.train_images.dtype == made.test_images.dtype == kind
        assert made.class_names == ("0", "1", "2")
        assert made.source == "made"


def test_torchvision_with_data_and_targets() -> None:
    part = SimpleNamespace(data=torch.from_numpy(IMAGES), targets=LABELS, classes=["a", "b", "c"])
    made = from_torchvision("own", part, part)
    np.testing.assert_array_equal(made.train_images, IMAGES)
    assert made.class_names == ("a", "b", "c")


@pytest.mark.parametrize("convert", [Image.fromarray, lambda one: torch.from_numpy(one).float().div(255)[None]])
def test_torchvision_as_pairs_of_images_or_tensors(convert) -> None:
    pairs = [(convert(image), label) for image, label in zip(IMAGES, LABELS, strict=True)]
    made = from_torchvision("own", pairs, pairs)
    np.testing.assert_array_equal(made.test_images, IMAGES)
    assert made.test_labels.tolist() == LABELS


def test_hugging_face_images_texts_and_columns() -> None:
    table = {
        "image": [Image.fromarray(image) for image in IMAGES],
        "text": ["a b", "b a", "a a", "b b", "a b", "b a"],
        "x": [0.5] * 6,
        "y": list(range(6)),
        "label": LABELS,
    }
    tables = {"train": table, "test": table}
    np.testing.assert_array_equal(from_hugging_face("own", tables, columns=["image"]).train_images, IMAGES)
    texts = from_hugging_face("own", tables, columns=["text"], tokenise=lambda text: [ord(c) for c in text.split()])
    assert texts.train_images[0].tolist() == [97, 98]
    assert texts.train_images.dtype == np.int64
    features = from_hugging_face("own", tables, columns=["x", "y"])
    np.testing.assert_array_equal(features.test_images[3], [0.5, 3.0])
    with pytest.raises(DataError, match="no part 'validation' among train, test"):
        from_hugging_face("own", tables, columns=["x"], test="validation")
