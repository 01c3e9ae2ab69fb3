"""The live room's page in a browser: what people type stays text, all can use it, it follows the votes."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("jupyterhub")
pytest.importorskip("configurable_http_proxy")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from amp_lessons import quizzes
from tests.classroom.hubs_with_a_room import PASSWORD, TEACHER, running_hub

pytestmark = [pytest.mark.browser, pytest.mark.thorough, pytest.mark.timeout(300)]

QUESTION = quizzes.question("scaling.floor")
VOTE = f"api/predictions/{QUESTION.id}"
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "</title><script>alert(1)</script>",
    "{{ 7*7 }} ${7*7} <%= 7*7 %>",
    "<iframe srcdoc='<script>alert(1)'>",
    "<style>*{display:none}</style>",
    "__proto__",
    "constructor",
    "</script><b onclick=alert(1)>x",
    "&lt;script&gt;",
    "\\u003cscript\\u003e",
    "<a href=//evil.example>click</a>",
    "NULL'); DROP TABLE x;--",
    "W" * 40,
    "أحمد",
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with running_hub(tmp_path_factory.mktemp("hub")) as hub:
        for i, name in enumerate(HOSTILE):
            token = hub.learner(f"hostile{i}", name)
            assert hub.ask("PUT", "api/exercises/loss_scaler", {}, token).status_code == 200
        yield hub


def log_in(context, hub, login):
    """Open the room's page, through the hub's own login."""
    page = context.new_page()
    page.heard = []
    page.on("dialog", lambda dialog: (page.heard.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.on("console", lambda said: page.heard.append(said.text))
    ours = hub.page[:17]
    page.on("request", lambda asked: None if asked.url.startswith(ours) else page.heard.append(asked.url))
    page.goto(hub.page)
    assert "/hub/login" in page.url, "nobody sees the page without logging in"
    page.fill("#username_input", login)
    page.fill("#password_input", PASSWORD)
    page.click("#login_submit")
    page.wait_for_url(hub.page)
    return page


@pytest.fixture(scope="module")
def of_teacher(hub, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield log_in(context, hub, TEACHER)
    context.close()


@pytest.fixture(scope="module")
def of_learner(hub, browser):
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    yield log_in(context, hub, "looker")
    context.close()


@pytest.fixture(autouse=True)
def nothing_untoward(of_teacher, of_learner):
    of_teacher.heard.clear(), of_learner.heard.clear()
    yield
    assert of_teacher.heard == []
    assert of_learner.heard == []


def show(page, question):
    """Have the answers to a question shown, by keyboard."""
    page.get_by_role("combobox", name="Lesson").select_option("03")
    page.get_by_role("combobox", name="Prediction").select_option(question.id)
    page.get_by_role("button", name="Show the answers").press("Enter")


def test_hostile_names_are_seen_as_they_were_typed_and_do_nothing(of_teacher, of_learner):
    for page in (of_teacher, of_learner):
        names = page.locator("#solved bdi")
        expect(names).to_have_count(len(HOSTILE))
        assert sorted(names.all_text_contents()) == sorted(HOSTILE)
        assert page.locator("script").count() == 1
        assert page.locator("svg, iframe, img, main style, main a, b").count() == 0


def test_the_page_would_refuse_a_script_that_got_into_it(of_learner):
    refused = of_learner.evaluate(
        """() => [
            () => { document.querySelector("footer").innerHTML = "<b>x</b>"; },
            () => document.querySelector("footer").setAttribute("onclick", "0"),
            () => { document.createElement("script").textContent = "0"; },
            () => document.querySelector("footer").insertAdjacentHTML("beforeend", "<b>x</b>"),
        ].map((each) => { try { each(); return "ran"; } catch { return "refused"; } })"""
    )
    assert refused == ["refused"] * 4
    of_learner.evaluate("document.body.append(Object.assign(new Image(), {src: 'https://evil.example/'}))")
    said = [each for each in of_learner.heard if not each.startswith("https:")]
    assert said
    assert all("requires 'Trusted" in each or "Content Security Policy" in each for each in said)
    of_learner.reload()
    of_learner.heard.clear()


def test_bars_follow_the_votes_and_the_right_answer_waits_for_the_teacher(hub, of_teacher, of_learner):
    token = hub.learner("voter")
    show(of_teacher, QUESTION)
    for page in (of_teacher, of_learner):
        expect(page.locator("#asked")).to_have_text(QUESTION.text)
        expect(page.locator("#answered")).to_contain_text("0 people have answered")
    hub.ask("PUT", VOTE, {"choice": 0}, token)
    right = next(i for i, each in enumerate(QUESTION.choices) if each.right)
    for page in (of_teacher, of_learner):
        expect(page.locator("#choices li").first).to_contain_text("1 (100 %)")
        bar, track = (
            page.locator("#choices .bar.now" + more).first.element_handle() for more in (" span", "")
        )
        page.wait_for_function("([a, b]) => a.offsetWidth > b.offsetWidth - 4", arg=[bar, track])
        assert QUESTION.answer.why not in page.content()
        expect(page.get_by_text("✓ right")).to_have_count(0)
    hub.ask("PUT", VOTE, {"choice": right}, token)
    for page in (of_teacher, of_learner):
        expect(page.locator("#choices li").nth(right)).to_contain_text("at first 0, now 1 (100 %)")
    of_teacher.get_by_role("button", name="Say which is right").press("Enter")
    for page in (of_teacher, of_learner):
        expect(page.locator("#choices li").nth(right)).to_contain_text("✓ right")
        expect(page.locator("#why")).to_have_text(QUESTION.answer.why)
        expect(page.get_by_role("status")).to_have_text("The right answer is shown.")
    chosen = of_teacher.get_by_role("combobox", name="Prediction").locator("option:checked")
    expect(chosen).to_contain_text("(1) ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nobody_is_kept_out_and_nothing_scrolls_sideways(of_teacher, scheme, width):
    show(of_teacher, QUESTION)
    expect(of_teacher.locator("#choices li")).to_have_count(len(QUESTION.choices))
    of_teacher.emulate_media(color_scheme=scheme)
    of_teacher.set_viewport_size({"width": width, "height": 800})
    found = Axe().run(of_teacher).response["violations"]
    assert [(each["id"], each["nodes"][0]["target"]) for each in found] == []
    scrolled, shown = of_teacher.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert scrolled <= shown


def test_a_learner_sees_no_buttons_and_the_page_keeps_the_focus_where_it_is(hub, of_teacher, of_learner):
    assert of_learner.get_by_role("button").count() == 0
    of_teacher.get_by_role("combobox", name="Lesson").focus()
    before = of_teacher.locator("#people").text_content()
    hub.learner("newcomer")
    expect(of_teacher.locator("#people")).not_to_have_text(before)
    assert of_teacher.evaluate("document.activeElement.id") == "lesson"


def test_another_site_cannot_press_the_teachers_buttons(hub, of_teacher):
    people = of_teacher.locator("#people").text_content()
    post = of_teacher.context.request.post  # with the cookies, as a form would
    forged = post(hub.page + "teach/end", data={})
    assert forged.status == 403
    assert of_teacher.context.request.get(hub.page).ok
    of_teacher.reload()
    expect(of_teacher.locator("#people")).to_have_text(people)


def test_nothing_is_left_in_the_browser(of_teacher):
    answer = of_teacher.reload()
    assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert of_teacher.evaluate("localStorage.length + sessionStorage.length") == 0


def test_at_the_end_of_the_class_everything_is_gone(hub, of_teacher, of_learner):
    of_teacher.get_by_text("End the class", exact=True).press("Enter")
    of_teacher.get_by_role("button", name="End the class and forget it").press("Enter")
    for page in (of_teacher, of_learner):
        expect(page.locator("#people")).to_have_text("Nobody takes part yet.")
        expect(page.locator("#solved li")).to_have_count(0)
        expect(page.locator("#asked")).to_have_text("No prediction is shown.")
    assert not any(name in of_teacher.content() for name in HOSTILE if re.search("[<>{]", name))
