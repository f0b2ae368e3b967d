"""The partition of samples among clients."""

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.learning.partition import partition
from tests.helpers.tiny import tiny_dataset


@pytest.mark.parametrize("method", ["writer", "dirichlet", "iid"])
def test_partition_gives_exact_sizes_and_no_sample_twice(method: str) -> None:
    data = tiny_dataset()
    sizes = np.array([200, 50, 333, 417, 200])
    parts = partition(data.train_labels, data.train_writers, sizes, method=method, dirichlet_alpha=0.3, seed=1)
    assert [len(part) for part in parts] == sizes.tolist()
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything) == 1200
    again = partition(data.train_labels, data.train_writers, sizes, method=method, dirichlet_alpha=0.3, seed=1)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    other = partition(data.train_labels, data.train_writers, sizes, method=method, dirichlet_alpha=0.3, seed=2)
    assert any((a != b).any() for a, b in zip(parts, other, strict=True))


def skew(parts: list[np.ndarray], labels: np.ndarray) -> float:
    """Mean total variation distance between the label mixtures of the clients and of the dataset."""
    overall = np.bincount(labels, minlength=10) / len(labels)
    mixtures = [np.bincount(labels[part], minlength=10) / len(part) for part in parts]
    return float(np.mean([0.5 * np.abs(mixture - overall).sum() for mixture in mixtures]))


def test_smaller_alpha_is_more_skewed_and_iid_least() -> None:
    data, sizes = tiny_dataset(), np.full(5, 100)
    skews = [
        skew(partition(data.train_labels, None, sizes, method=m, dirichlet_alpha=a, seed=0), data.train_labels)
        for m, a in (("dirichlet", 0.1), ("dirichlet", 1.0), ("dirichlet", 100.0), ("iid", 1.0))
    ]
    assert skews[0] > skews[1] > skews[2]
    assert skews[3] < 0.2


def test_writers_stay_together() -> None:
    data, sizes = tiny_dataset(), np.array([100, 100, 100])
    parts = partition(data.train_labels, data.train_writers, sizes, method="writer", dirichlet_alpha=1.0, seed=0)
    owners = [set(data.train_writers[part].tolist()) for part in parts]
    assert not owners[0] & owners[1]
    assert all(len(own) <= 6 for own in owners)


def test_too_little_data_and_no_writers_are_errors() -> None:
    data = tiny_dataset()
    with pytest.raises(ConfigError, match="1,300 samples together but the dataset has 1,200"):
        partition(data.train_labels, None, np.array([1300]), method="iid", dirichlet_alpha=1.0, seed=0)
    with pytest.raises(ConfigError, match="dataset with writers"):
        partition(data.train_labels, None, np.array([13]), method="writer", dirichlet_alpha=1.0, seed=0)
