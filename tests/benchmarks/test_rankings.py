"""Rankings over devices: every cell loads, and ratios, orders and the figure follow from a record by hand."""

import json

import pytest

from benchmarks import rankings
from benchmarks.rankings import (
    CELLS,
    CODECS,
    PAPER,
    POLICIES,
    compute,
    entries,
    fairness,
    figure,
    groups,
    ratios,
    table,
)
from qccf.settings.loading import load_scenario


def made(energies) -> dict:
    """A record in which entry k of every cell takes `energies[cell][k]` joules, and twice that with seed 1."""
    names = [f"{policy}, {codec}" for policy, codec in entries()]
    return {
        cell: {
            name: {
                str(seed): {"energy_j": value * (1 + seed), "computing": 0.5, "bits": 2.0, "jain": 0.5, "late": 0.0}
                for seed in (0, 1)
            }
            for name, value in zip(names, values, strict=True)
        }
        for cell, values in energies.items()
    }


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_loads(cell: str) -> None:
    preset, changes = CELLS[cell]
    assert load_scenario(preset, changes).constants().deadline_s > 0.0


def test_ratios_are_paired_by_seed_and_orders_compared_with_the_papers() -> None:
    rising = [float(k + 1) for k in range(len(entries()))]
    record = made({PAPER: rising, "phones": rising[::-1]})
    _, names, labels = groups()[0]
    assert ratios(record, PAPER, names[1], names[0]).mean == 2.0
    assert ratios(record, PAPER, names[1], names[0]).half == 0.0
    lines = table(record, names, labels)
    assert lines[2].startswith(f"| {PAPER} | 50% | 2")
    assert lines[2].endswith("+1.00 |")
    assert lines[3].endswith("-1.00 |")
    assert fairness(record)[2] == f"| {PAPER} |" + " 0.50 |" * len(POLICIES)
    chart = figure(record)
    assert [len(panel.series) for panel in chart.panels] == [len(POLICIES) - 1, len(CODECS) - 1]


def test_only_what_is_missing_is_computed(tmp_path, monkeypatch) -> None:
    asked = []

    class Planned:
        pass

    monkeypatch.setattr(rankings, "plan", lambda _scenario, policies, _seeds: asked.append(policies) or [Planned()])
    monkeypatch.setattr(rankings, "measures", lambda _run: {"energy_j": 1.0})
    file, record = tmp_path / "record.json", {}
    compute(record, file, 1, 3, ["preset iot"])
    assert len(asked) == len(entries())
    compute(json.loads(file.read_text()), file, 1, 3, ["preset iot"])
    assert len(asked) == len(entries())
