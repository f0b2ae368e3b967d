"""Every dataset says what it is, and what to do where its files are missing."""

from pathlib import Path

import numpy as np
import pytest

from qccf.learning.datasets import DATASETS, DataError
from qccf.learning.datasets.registry import dataset_source, load_dataset
from tests.conformance.entries import entries

NAMES = entries(DATASETS)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_description_of_one_line(name: str) -> None:
    description = dataset_source(name).description
    assert description
    assert "\n" not in description


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_folder_is_refused_or_enough(name: str, tmp_path: Path) -> None:
    source = dataset_source(name)
    try:
        source.check(tmp_path)
    except DataError as error:
        refusal = str(error)
    else:
        dataset, again = load_dataset(name, tmp_path), load_dataset(name, tmp_path)
        np.testing.assert_array_equal(dataset.train_images, again.train_images)
        np.testing.assert_array_equal(dataset.test_labels, again.test_labels)
        assert dataset.source
        return
    assert "\n" not in refusal, "one sentence"
    with pytest.raises(DataError):
        load_dataset(name, tmp_path)
