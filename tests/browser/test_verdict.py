"""What a picture says in short as it moves, alone on a page."""

from __future__ import annotations

from amp_lessons.course.site.build import widget_scripts

RENDERED = """() => {
  const state = { drawing: "<svg></svg>", outlines: {}, caption: "", box: "<div class='amp-scroll'></div>" };
  const heard = {};
  const model = { get: (name) => state[name], on: (name, each) => (heard[name.slice(7)] = each) };
  window.move = (in_short, of, goal) => {
    Object.assign(state, { in_short, goal: [of, goal] });
    heard.goal?.();
    return document.querySelector(".amp-in-short").textContent;
  };
  Object.assign(state, { in_short: "", goal: ["", ""] });
  ampWidgets.MovingPage.render({ model, el: document.querySelector("main") });
}"""


def test_both_ends_are_found_once_each_was_seen_of_the_same_gradients(browser):
    page = browser.new_page()
    page.set_content("<main></main>")
    page.add_script_tag(content=widget_scripts())
    page.evaluate(RENDERED)
    both = "You have found both ends."
    for said, of, goal, shown in (
        ("low", "fp16", "begins", "low"),
        ("high", "bf16", "ends", "high"),
        ("low again", "fp16", "begins", "low again"),
        ("between", "fp16", "", "between"),
        ("high", "fp16", "ends", f"high {both}"),
        ("between", "fp16", "", "between"),
        ("low", "fp16", "begins", f"low {both}"),
    ):
        assert page.evaluate("([said, of, goal]) => move(said, of, goal)", [said, of, goal]) == shown
    page.close()
