"""A whole page: what was written by others stays text, and the browser may fetch nothing."""

import pytest
from markupsafe import Markup

from amp_lessons._base.text.page import whole_page


def test_the_title_is_escaped_and_the_body_stands_as_it_is(tmp_path):
    style = tmp_path / "style.css"
    style.write_text("p > em { color: red; }", "utf-8")
    page = whole_page("<script>alert(1)</script> é", Markup("<p>a &lt; b</p>"), style)
    assert "<script>" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt; é") == 2  # in the tab and above the text
    assert "<p>a &lt; b</p>" in page
    assert "p > em { color: red; }" in page


@pytest.mark.browser
def test_the_browser_runs_nothing_and_fetches_nothing(browser, tmp_path):
    style = tmp_path / "style.css"
    style.write_text("p { color: rgb(1, 2, 3); }", "utf-8")
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACADs="
    body = Markup('<p>text</p><img src="{}"><script>document.title = "run"</script><img src="/there.png">')
    asked = []
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/*", lambda route: (asked.append(route.request.url), route.abort()))
        page.set_content(whole_page("A page", body.format(pixel), style))
        assert page.title() == "A page"
        colour = "getComputedStyle(document.querySelector('p')).color"
        assert page.evaluate(colour) == "rgb(1, 2, 3)"
        assert page.evaluate("[...document.images].map(image => image.naturalWidth)") == [1, 0]
    assert asked == []
