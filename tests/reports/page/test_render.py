"""Markdown on the page."""

from qccf.reports.page.render import markdown


def test_markdown_of_our_documents() -> None:
    page = markdown(
        "# A\n\nOne *two*\n**three** `a<b` [four](x.md).\n\n| h | i |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n- x\n  y\n- z"
    )
    assert "<h2>A</h2>" in page
    assert "<p>One <em>two</em>\n<strong>three</strong> <code>a&lt;b</code> four.</p>" in page
    assert '<div class="wide"><table class="stack">' in page
    assert '<th scope="col">h</th>' in page
    assert '<td data-head="h">3</td>\n<td data-head="i">4</td>' in page
    assert "<li>x\ny</li>" in page


def test_markdown_holds_no_links_images_or_html() -> None:
    page = markdown("<script>alert(1)</script> ![alt](http://example.org/a.png) <http://example.org>")
    assert "<script" not in page
    assert "<img" not in page
    assert "<a " not in page
    assert "&lt;script&gt;" in page
    assert "alt" in page
