"""FEMNIST: characters of NIST SD19 by writer, from the JSON files of LEAF's scripts or from parquet files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import CHARACTERS, SAMPLES_MAX, Dataset, DownloadProgress, numbered, places
from qccf.learning.datasets.femnist_leaf import read_leaf
from qccf.learning.datasets.femnist_parquet import read_parquet
from qccf.learning.datasets.splits import held_out

# LEAF's default: a tenth of each writer's samples are test samples.
_TEST_FRACTION = 0.1


@dataclass(frozen=True)
class _Files:
    """Files of one format. ``test`` is empty if they contain no split."""

    form: str
    train: list[Path]
    test: list[Path]


class FemnistSource:
    """The paper's first dataset, in which each client is a writer."""

    name = "femnist"
    description = "FEMNIST: handwritten characters 28 × 28 in 62 classes (0-9 A-Z a-z) with their writers"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The split of the files; if they have none, ``seed`` draws a tenth of each writer's samples to test."""
        files = _find(folder)
        images, labels, writers = _read(files.form, files.train)
        if files.test:
            test_images, test_labels, _ = _read(files.form, files.test)
            split = "its own split"
        else:
            in_test = held_out(numbered(writers), _TEST_FRACTION, seed=seed, name=self.name)
            test_images, test_labels = images[in_test], labels[in_test]
            images, labels, writers = images[~in_test], labels[~in_test], writers[~in_test]
            split = f"1/10 of each writer held out (seed {seed})"
        return Dataset(
            name=self.name,
            train_images=images,
            train_labels=labels,
            train_writers=numbered(writers),
            test_images=test_images,
            test_labels=test_labels,
            class_names=CHARACTERS,
            synthetic=False,
            source=f"FEMNIST ({files.form}, {split}): real handwritten characters by known writers",
        )

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """The existing files, or an error that explains how to build them, because they cannot be downloaded."""
        try:
            files = _find(folder)
        except DataError as error:
            raise DataError(
                "femnist: LEAF builds FEMNIST on your machine (leaf/data/femnist, ./preprocess.sh -s niid --sf 1.0 -k 0"
                f" -t sample), and no address serves the result; put its data/train and data/test into"
                f" {folder / self.name}, or the *.parquet files of flwrlabs/femnist."
            ) from error
        progress(f"{self.name}: already in {files.train[0].parent}", 0, None)
        return files.train + files.test

    def check(self, folder: Path) -> list[str]:
        """The content of every file. LEAF's output depends on its settings, so there is no checksum to compare."""
        files = _find(folder)
        lines = []
        for part, paths in (("train", files.train), ("test", files.test)):
            for path in paths:
                _, labels, writers = _read(files.form, [path])
                where = part if files.test else "no split"
                lines.append(
                    f"{path}: {files.form}, {where}, {len(labels)} characters by {len(np.unique(writers))} writers;"
                    " no published checksum to compare"
                )
        return lines


def _find(folder: Path) -> _Files:
    """The first format found: LEAF split into folders, LEAF split by file name or without a split, parquet."""
    for place in places(folder, "femnist", "data", "data/all_data", "all_data"):
        train, test = sorted((place / "train").glob("*.json")), sorted((place / "test").glob("*.json"))
        if train and test:
            return _Files("LEAF JSON", train, test)
        together = sorted(place.glob("all_data_*.json"))
        # LEAF's names of split files end in _train_<parameters> and _test_<parameters>.
        test = [path for path in together if "_test_" in path.name]
        train = [path for path in together if "_train_" in path.name]
        if train and test:
            return _Files("LEAF JSON", train, test)
        if together and not train and not test:
            return _Files("LEAF JSON", together, [])
    for place in places(folder, "femnist", "data"):
        # Parquet files in the common folder may belong to another dataset, so only femnist*.parquet is read there.
        if packed := sorted(place.glob("femnist*.parquet" if place == folder else "*.parquet")):
            return _Files("parquet", packed, [])
    raise DataError(
        f"femnist: {folder} contains neither LEAF's all_data_*.json (in train/ and test/, or together) nor *.parquet;"
        f" put them into {folder / 'femnist'} (qccf data fetch femnist explains how to build them)."
    )


def _read(form: str, paths: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.str_]]:
    """Images, labels and writers' names of several files, concatenated."""
    reader = read_leaf if form == "LEAF JSON" else read_parquet
    parts = []
    total = 0
    for path in paths:
        parts.append(reader(path))
        total += len(parts[-1][1])
        if total > SAMPLES_MAX:
            raise DataError(
                f"{path}: brings femnist to {total} samples, above {SAMPLES_MAX}; remove files of other datasets."
            )
    images, labels, writers = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if len(labels) == 0:
        raise DataError(f"{paths[0].parent}: its {len(paths)} {form} files contain no sample; build them again.")
    return images, labels, writers
