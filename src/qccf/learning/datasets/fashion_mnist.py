"""Fashion-MNIST: articles of clothing in the format of MNIST."""

from pathlib import Path

from qccf.core.errors import DataError
from qccf.learning.datasets import mnist_files
from qccf.learning.datasets.base import Dataset, DownloadProgress
from qccf.learning.datasets.fetch import fetched_package, run_command

ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_DEBIAN_PACKAGE = "dataset-fashion-mnist"
_DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"

_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


class FashionMnistSource:
    name = "fashion-mnist"
    description = "Fashion-MNIST: 70,000 grey images of clothing 28 × 28 in 10 classes (MIT licence)"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split; ``seed`` has no effect."""
        source = "Fashion-MNIST, the official idx files: real photographs of clothing"
        return mnist_files.load_idx(self.name, folder, mnist_files.FASHION_FILES, _CLASSES, source)

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """The four official files, from the official address or from Debian's package."""
        origin = mnist_files.Origin(ADDRESS, f"Debian, {_DEBIAN_PACKAGE}", _from_debian)
        return mnist_files.fetch_idx(self.name, folder, mnist_files.FASHION_FILES, origin, progress)

    def check(self, folder: Path) -> list[str]:
        return mnist_files.check_idx(self.name, folder, mnist_files.FASHION_FILES)


def _from_debian(progress: DownloadProgress) -> dict[mnist_files.IdxFile, bytes]:
    """The four packed files in Debian's package, which is unpacked but not installed."""
    with fetched_package(["apt-get", "download", _DEBIAN_PACKAGE], "*.deb", progress) as package:
        unpacked = package.parent / "unpacked"
        run_command(["dpkg-deb", "-x", str(package), str(unpacked)], package.parent)
        try:
            return {
                file: (unpacked / _DEBIAN_FOLDER / f"{file.name}.gz").read_bytes() for file in mnist_files.FASHION_FILES
            }
        except OSError as error:
            raise DataError(f"{package.name}: lacks {error.filename}; download the files by hand.") from error
