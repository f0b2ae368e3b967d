"""`qccf data`."""

import pytest

from qccf.cli.main import main

pytestmark = pytest.mark.usefixtures("tiny_source")


def test_data_lists_checks_and_fetches(capsys) -> None:
    assert main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("handwriting", "emnist", "femnist", "mnist", "fashion-mnist", "cifar10"))
    assert main(["data", "fetch", "tiny"]) == 0
    assert "tiny: whole" in capsys.readouterr().out
    assert main(["data", "check", "tiny"]) == 0
    assert main(["data", "check", "nothing"]) == 2
    assert "dataset 'nothing' is not one of" in capsys.readouterr().err
