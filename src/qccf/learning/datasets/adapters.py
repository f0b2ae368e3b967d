"""Datasets from what other libraries hold: plain arrays, torchvision's objects, Hugging Face's tables.

Nothing here imports those libraries; an object only has to have their form.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import Dataset, checked

Part = tuple[Any, Any]
"""Samples and labels."""


def from_arrays(
    name: str, train: Part, test: Part, *, class_names: Sequence[str] = (), synthetic: bool = False, source: str = ""
) -> Dataset:
    """Samples and labels of both parts; without class names the classes are numbered."""
    (train_samples, train_labels), (test_samples, test_labels) = (_part(*part) for part in (train, test))
    count = int(max(train_labels.max(initial=-1), test_labels.max(initial=-1))) + 1
    return checked(
        Dataset(
            name=name,
            train_images=train_samples,
            train_labels=train_labels,
            train_writers=None,
            test_images=test_samples,
            test_labels=test_labels,
            class_names=tuple(class_names) or tuple(map(str, range(count))),
            synthetic=synthetic,
            source=source or name,
        )
    )


def from_torchvision(name: str, train: Any, test: Any, **about: Any) -> Dataset:
    """Two objects with `data` and `targets`, or with pairs (image, label) by index."""
    about.setdefault("class_names", tuple(getattr(train, "classes", ())))
    return from_arrays(name, _pairs(train), _pairs(test), **about)


def from_hugging_face(
    name: str,
    tables: Mapping[str, Any],
    *,
    columns: Sequence[str],
    label: str = "label",
    tokenise: Callable[[str], Sequence[int]] | None = None,
    train: str = "train",
    test: str = "test",
    **about: Any,
) -> Dataset:
    """A DatasetDict. One column of images or of texts (with `tokenise`, which gives equally many ids for each), or one
    or more columns of numbers, which become features."""
    for part in (train, test):
        if part not in tables:
            raise DataError(
                f"{name}: there is no part {part!r} among {', '.join(tables)}; name it with train= or test=."
            )

    def samples(table: Any) -> Any:
        if tokenise is not None:
            return np.array([tokenise(text) for text in table[columns[0]]], dtype=np.int64)
        if len(columns) == 1 and np.asarray(table[columns[0]][0]).ndim >= 2:
            return np.stack([np.asarray(image) for image in table[columns[0]]])
        return np.column_stack([np.asarray(table[column], dtype=np.float32) for column in columns])

    parts = [(samples(tables[part]), np.asarray(tables[part][label])) for part in (train, test)]
    return from_arrays(name, *parts, **about)


def _pairs(data: Any) -> Part:
    if hasattr(data, "data") and hasattr(data, "targets"):
        return data.data, data.targets
    pairs = [data[index] for index in range(len(data))]
    return np.stack([_image(image) for image, _ in pairs]), [label for _, label in pairs]


def _image(image: Any) -> NDArray[Any]:
    """A tensor of `ToTensor` [channel, height, width] from 0 to 1 becomes bytes again; other images stay."""
    values = np.asarray(image)
    if values.dtype.kind == "f" and values.ndim == 3 and values.shape[0] in (1, 3):
        values = np.round(np.moveaxis(values, 0, -1) * 255.0).astype(np.uint8)
    return values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values


def _part(samples: Any, labels: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    values = np.asarray(samples)
    kinds = {"f": np.float32, "i": np.int64}
    return values.astype(kinds.get(values.dtype.kind, values.dtype)), np.asarray(labels).astype(np.int64)
