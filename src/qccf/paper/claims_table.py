"""The claims as a table: one row per number that a verdict uses."""

import csv
import io
from collections.abc import Sequence

from qccf.paper.claims import Judged, number_cause

COLUMNS = (
    "data", "claim", "words", "paper", "paper_value", "part", "against", "quantity", "unit", "mean", "low", "high",
    "seeds", "answer", "verdict", "cause", "why", "figure",
)  # fmt: skip
"""`answer` judges the number, `verdict` the whole claim; `low` to `high` is a 95 % interval, empty with one seed.
`cause` is that of the number: the numbers of one cause are tested together."""


def claims_to_csv(judged: Sequence[tuple[Judged, str]]) -> str:
    """The table of claims, each given with the key of its figure."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(COLUMNS)
    for one, figure in judged:
        claim = one.claim
        head = (one.family.title, claim.key, claim.words, claim.figure, claim.paper)
        for finding in one.findings:
            for m in finding.measures:
                q, e = m.quantity, m.estimate
                numbers = [f"{v * q.scale:.6g}" if v == v else "" for v in (e.mean, e.low, e.high)]
                row = (finding.part, m.against, q.name, q.unit.strip(), *numbers, e.count, m.answer)
                table.writerow((*head, *row, one.verdict, number_cause(claim, finding, m), one.why, figure))
            if not finding.measures:
                tail = (one.verdict, claim.cause, one.why, figure)
                table.writerow((*head, finding.part, *[""] * 7, finding.verdict, *tail))
    return buffer.getvalue()
