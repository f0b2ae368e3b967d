"""Logs every round for TensorBoard."""

from pathlib import Path
from typing import Any

from qccf.core.errors import ConfigError
from qccf.runtimes.simulator import RoundEvent


class TensorBoardWriter:
    """A callback that logs every number of a round under its column name."""

    def __init__(self, folder: Path) -> None:
        self._writer = tensorboard_class()(str(folder))

    def update(self, event: RoundEvent) -> None:
        row = event.ledger.last
        for name, value in row.items():
            if name != "round":
                self._writer.add_scalar(name, value, int(row["round"]))
        self._writer.flush()


def tensorboard_class() -> Any:
    """The writer of PyTorch, which needs a package of its own."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install 'qccf[tensorboard]'.") from None
    return SummaryWriter
