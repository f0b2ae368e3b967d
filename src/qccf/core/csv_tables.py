"""CSV files that users write, read the same way everywhere: by hand, by a spreadsheet or by a program."""

import csv
from collections.abc import Iterable

BYTE_ORDER_MARK = "\ufeff"
"""What spreadsheets write before the first character of a UTF-8 file."""


def csv_table(lines: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns and the rows. Blanks around a cell, blank lines and lines that begin with # are dropped.

    Rows may be shorter or longer than the first. Raises `csv.Error` where the text is not CSV.
    """
    content = (line.removeprefix(BYTE_ORDER_MARK) if index == 0 else line for index, line in enumerate(lines))
    found = ([cell.strip() for cell in row] for row in csv.reader(line for line in content if not line.startswith("#")))
    rows = [row for row in found if row not in ([], [""])]
    return (rows[0], rows[1:]) if rows else ([], [])
