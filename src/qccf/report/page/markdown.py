"""The little of Markdown that our documents use, as HTML: headings, paragraphs, tables, lists, code, bold, links."""

import html
import re


def to_html(text: str, *, heading: int = 2) -> str:
    """Blocks are told apart by empty lines; `heading` is the level that `#` becomes."""
    return "\n".join(_block(block, heading) for block in re.split(r"\n\s*\n", text.strip()))


def inline(text: str) -> str:
    """Code, bold and the text of links; targets that lead to other documents are dropped."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    escaped = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)
    escaped = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", escaped)
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", escaped)


def _block(block: str, heading: int) -> str:
    lines = block.split("\n")
    if match := re.match(r"(#+) (.*)", block):
        level = heading + len(match[1]) - 1
        return f"<h{level}>{inline(match[2])}</h{level}>"
    if lines[0].startswith("|"):
        return _table(lines)
    if lines[0].startswith("- "):
        items = re.split(r"\n(?=- )", block)
        return "<ul>" + "".join(f"<li>{inline(_joined(item[2:]))}</li>" for item in items) + "</ul>"
    return f"<p>{inline(_joined(block))}</p>"


def _table(lines: list[str]) -> str:
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    head, body = rows[0], rows[2:]
    top = "".join(f'<th scope="col">{inline(cell)}</th>' for cell in head)
    rest = "".join(
        "<tr>"
        + "".join(f'<td data-head="{html.escape(h)}">{inline(c)}</td>' for h, c in zip(head, row, strict=True))
        + "</tr>"
        for row in body
    )
    return f'<div class="wide"><table class="stack"><thead><tr>{top}</tr></thead><tbody>{rest}</tbody></table></div>'


def _joined(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)
