"""Turns the content of the page into HTML: Jinja2 templates that escape every value, and Markdown."""

import base64
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

MIME_TYPES = {"svg": "image/svg+xml", "pdf": "application/pdf", "csv": "text/csv"}


def render(template: str, **content: Any) -> str:
    environment = Environment(
        loader=PackageLoader("qccf.reports.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False}
    environment.filters |= {"markdown": markdown, "plural": plural, "data_uri": data_uri}
    environment.globals["asset"] = lambda name: Markup(asset(name))
    return environment.get_template(template).render(content)


def asset(name: str) -> str:
    return resources.files("qccf.reports.page").joinpath("assets", name).read_text(encoding="utf-8")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def data_uri(data: bytes, name: str) -> str:
    """A link target that holds the whole file."""
    return f"data:{MIME_TYPES[name.rpartition('.')[2]]};base64,{base64.b64encode(data).decode()}"


def markdown(text: str, heading: int = 2) -> Markup:
    """Markdown as HTML: `#` becomes a heading of that level, HTML is shown as text, links and images become text.

    The page must work alone, so it refers to no other file.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    heads: list[str] = []
    for token, content in zip(tokens, [*tokens[1:], Token("", "", 0)], strict=True):
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{min(6, int(token.tag[1:]) + heading - 1)}"
            case "table_open":
                token.attrSet("class", "stack")
                heads.clear()
            case "th_open":
                token.attrSet("scope", "col")
                heads.append(content.content)
            case "tr_open":
                column = 0
            case "td_open":
                token.attrSet("data-head", heads[column] if column < len(heads) else "")
                column += 1
            case "inline":
                token.children = [
                    Token("text", "", 0, content=child.content) if child.type == "image" else child
                    for child in token.children or []
                    if child.type not in ("link_open", "link_close")
                ]
    page = parser.renderer.render(tokens, parser.options, {})
    return Markup(page.replace("<table", '<div class="wide"><table').replace("</table>", "</table></div>"))
