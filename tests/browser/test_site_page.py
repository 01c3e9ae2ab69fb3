"""The one page of the site that `make test` opens: a question, what it hides, and bits that flip."""

from __future__ import annotations

from playwright.sync_api import expect

from amp_lessons import quizzes, views
from amp_lessons.course.lessons.shipped import head_of
from tests.browser.site_pages import keeps_out, open_pages
from tests.course.site.sites import write_lesson


def test_a_question_is_answered_remembered_and_forgotten_and_nobody_is_kept_out(browser, tmp_path):
    file = write_lesson(tmp_path, head_of("01"), {})
    question = quizzes.question("formats.count")
    right = question.choices.index(question.answer)
    with open_pages(browser, file.parent) as open_:
        page = open_(file.stem)
        asked = page.locator(f'[data-question="{question.id}"]')
        fold = page.locator(f'[data-answers="{question.id}"]')
        expect(fold.locator("pre")).to_be_hidden()
        asked.locator("button").nth(0 if right else 1).focus()
        page.keyboard.press("Enter")
        expect(asked.locator(".said")).to_contain_text("Not quite.")
        expect(asked.locator(".amp-wrong")).to_have_count(1)
        expect(asked.locator("button").nth(right)).to_contain_class("amp-right")
        expect(fold.locator("pre")).to_contain_text("torch.float16  stops at 2048")
        expect(fold.locator("pre")).to_be_visible()
        expect(page.locator('[data-answers="formats.updates"] pre')).to_be_hidden()
        asked.locator("button").nth(right).click()
        expect(asked.locator(".said")).to_have_text(f"Yes. {question.answer.why}")
        expect(page.locator("#kept")).to_contain_text("kept in this browser")
        page.reload()
        expect(asked.locator(".said")).to_contain_text("Your first answer, on ")
        expect(asked.locator(".said")).to_contain_text("Not quite.")  # the first one is kept
        expect(fold.locator("pre")).to_be_visible()
        expect(page.locator("#answered")).to_contain_text("1 of ")
        assert keeps_out(page) == []
        page.locator("#forget").click()  # which loads the page anew
        expect(page.locator("#forget")).to_be_hidden()
        expect(asked.locator(".said")).to_be_empty()


def test_the_first_view_of_lesson_01_is_played_with_and_says_what_the_notebook_s_says(browser, tmp_path):
    file = write_lesson(tmp_path, head_of("01"), {})
    formats = ["fp32", "fp16", "bf16"]
    with open_pages(browser, file.parent) as open_:
        page = open_(file.stem)
        said = page.locator("#said")
        expect(said).to_have_text(views.BitView("0.1", formats=formats).caption)
        assert page.locator("#format option").all_text_contents() == formats
        page.locator('#format-fp16 button[aria-label^="bit 0,"]').click()
        expect(said).to_have_text(views.BitView("0x2e67", formats=formats).caption)
        page.locator("#value").fill("65520")
        expect(page.locator("#format-fp16 .became")).to_have_text("inf: overflow, becomes inf")
