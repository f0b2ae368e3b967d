"""What a checkpoint holds, for tests that compare two."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.rounds.checkpoint import newest_tables


def checkpoint_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the last checkpoint, with the table of clients by its columns."""
    with np.load(sorted(folder.glob("round-*.npz"))[-1], allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if not name.startswith("clients/")}
    found = newest_tables(folder)
    assert found is not None
    return arrays | {f"clients/{name}": column for name, column in found[0]["clients"].items()}
