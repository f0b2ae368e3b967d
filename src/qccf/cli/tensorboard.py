"""TensorBoard logging, where its package is installed."""

from pathlib import Path

from qccf.core.errors import ConfigError
from qccf.runtimes.simulator import Progress


class TensorBoardWriter:
    """Every number of the round's row, under its own name."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("--tensorboard needs the package tensorboard: pip install 'qccf[tensorboard]'.") from None
        self._writer = SummaryWriter(str(folder))

    def update(self, progress: Progress) -> None:
        row = progress.ledger.last
        for name, value in row.items():
            if name != "round":
                self._writer.add_scalar(name, value, int(row["round"]))
        self._writer.flush()
