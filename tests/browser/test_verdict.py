"""What a picture says in short as it moves, alone on a page."""

from __future__ import annotations

from amp_lessons.course.site.build import widget_scripts

RENDERED = """() => {
  const state = { drawing: "<svg></svg>", outlines: {}, caption: "", box: "<div class='amp-scroll'></div>" };
  const heard = {};
  const model = { get: (name) => state[name], on: (name, each) => (heard[name.slice(7)] = each) };
  window.move = (in_short, ...goal) => {
    Object.assign(state, { in_short, goal });
    heard.goal?.();
    const marked = ["from", "to"].map((end) => getComputedStyle(main).getPropertyValue(`--amp-range-${end}`));
    const words = getComputedStyle(main).getPropertyValue("--amp-range-words");
    return [document.querySelector(".amp-in-short").textContent, ...marked.map(Number), words];
  };
  Object.assign(state, { in_short: "", goal: ["", "", 0, ""] });
  const main = document.querySelector("main");
  ampWidgets.MovingPage.render({ model, el: main.appendChild(document.createElement("div")) });
}"""


def test_both_ends_are_found_once_each_was_seen_of_the_same_gradients(browser):
    page = browser.new_page()
    page.set_content("<main></main>")
    page.add_script_tag(content=widget_scripts())
    page.evaluate(RENDERED)
    both = "✓ Found: 2³ to 2⁶ are safe."
    nothing, whole = [0, 0, '""'], [0.3, 0.6, '"safe"']
    low, high, between = ("begins", 0.3, "2³"), ("ends", 0.6, "2⁶"), ("", 0, "")
    for said, of, goal, shown, marked in (
        ("low", "fp16", low, "low", nothing),
        ("high", "bf16", high, "high", nothing),
        ("low again", "fp16", low, "low again", nothing),
        ("between", "fp16", between, "between", nothing),
        ("high", "fp16", high, both, whole),
        ("between", "fp16", between, "between", whole),
        ("high", "bf16", high, "high", nothing),
        ("low", "fp16", low, both, whole),
    ):
        assert page.evaluate("(goal) => move(...goal)", [said, of, *goal]) == [shown, *marked]
    page.close()
