"""The tutorial notebook runs from top to bottom, with fewer rounds than a reader's."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
ROUNDS = {30: 4, 8: 2}
"""Instead of the notebook's numbers of rounds, those that the test runs."""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the notebook's own machinery
def test_every_cell_runs_and_gives_what_the_notebook_shows(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [[sorted(output.get("data", {})) for output in cell.get("outputs", [])] for cell in notebook.cells]
    for cell in notebook.cells:
        for many, few in ROUNDS.items():
            cell.source = cell.source.replace(f'"federation.rounds": {many},', f'"federation.rounds": {few},')
            cell.source = cell.source.replace(f'"federation.rounds": {many}}}', f'"federation.rounds": {few}}}')
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    again = [[sorted(output.get("data", {})) for output in cell.get("outputs", [])] for cell in notebook.cells]
    assert again == shown, "run the notebook and save it"
    assert any("image/png" in kinds for outputs in again for kinds in outputs)
    text = nbformat.writes(notebook)
    assert "never took part" in text, "the health of the paper's form is shown"
