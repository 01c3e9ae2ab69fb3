// Questions: a press says why, and the first answer to each is kept in this browser. What answers a question, too,
// unfolds with its answer. How many of a lesson's core are answered is kept beside, for the list of lessons.
(() => {
  "use strict";
  const answers = window.ampKeeping.read("answers");

  const questions = [...document.querySelectorAll(".amp-quiz[data-question]")];
  const said = document.getElementById("answered");
  const count = () => {
    const core = questions.filter((each) => !each.closest(".deeper"));
    const done = core.filter((each) => Object.hasOwn(answers, each.dataset.question)).length;
    if (!said || !done) return;
    said.textContent = `You have answered ${done} of the ${core.length} questions of this core.`;
    const page = location.pathname.split("/").at(-1);
    window.ampKeeping.write("progress", { ...window.ampKeeping.read("progress"), [page]: [done, core.length] });
  };

  // Whatever is chosen, the right one is marked, too: what answers the question unfolds anyway.
  const sign = (buttons, chosen) => {
    for (const button of buttons) {
      const right = button.dataset.right === "1";
      button.classList.toggle("amp-right", Boolean(chosen) && right);
      button.classList.toggle("amp-wrong", button === chosen && !right);
    }
  };

  const unfold = (id) => {
    for (const fold of document.querySelectorAll(`details[data-answers~="${CSS.escape(id)}"]`)) {
      fold.open ||= fold.dataset.answers.split(" ").every((each) => Object.hasOwn(answers, each));
    }
  };

  const ask = (section) => {
    const id = section.dataset.question;
    const buttons = [...section.querySelectorAll(".amp-choice")];
    const said = section.querySelector(".said");

    const keep = (button) => {
      if (Object.hasOwn(answers, id)) return "";
      answers[id] = { chosen: buttons.indexOf(button), at: new Date().toISOString().slice(0, 10) };
      const isKept = window.ampKeeping.write("answers", answers);
      count();
      return isKept ? "" : " (This browser does not keep it.)";
    };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        sign(buttons, button);
        said.textContent = button.dataset.said + keep(button);
        unfold(id);
      });
    }

    const earlier = Object.hasOwn(answers, id) ? answers[id] : null;
    const chosen = earlier && buttons[earlier.chosen];
    if (!chosen) return;
    sign(buttons, chosen);
    said.textContent = `Your first answer, on ${String(earlier.at).slice(0, 10)}. ${chosen.dataset.said} `;
    const again = document.createElement("button");
    again.type = "button";
    again.textContent = "Answer again";
    again.addEventListener("click", () => {
      sign(buttons, null);
      said.textContent = "";
      buttons[0].focus();
    });
    said.append(again);
    unfold(id);
  };
  questions.forEach(ask);
  count();
})();
