"use strict";
// What comes from learners becomes text of elements, never markup: nothing here parses HTML, and the page's policy
// would refuse it.

const EVERY_MS = 1000;
const AFTER_TROUBLE_MS = 4000;
const xsrf = { "X-XSRFToken": document.querySelector("meta[name=xsrf]").content };
const at = (id) => document.getElementById(id);
let version = "";
let shown = null; // the prediction on the page, as it was when it was last announced

function element(name, className, ...inside) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...inside);
  return made;
}

function bar(className, part, whole) {
  const fill = element("span", "");
  fill.style.width = whole ? `${(100 * part) / whole}%` : "0";
  const made = element("div", `bar ${className}`, fill);
  made.setAttribute("aria-hidden", "true"); // the numbers stand beside it
  return made;
}

const percent = (part, whole) => (whole ? ` (${Math.round((100 * part) / whole)} %)` : "");

function choiceItem(choice, prediction) {
  const whole = prediction.answered;
  const text = element("span", "", `${choice.letter})  ${choice.text}`);
  if (choice.right) text.append(" ", element("span", "verdict", "✓ right"));
  const before = prediction.changed ? `at first ${choice.first}, now ` : "";
  const count = element("span", "count", `${before}${choice.now}${percent(choice.now, whole)}`);
  const item = element("li", choice.right ? "right" : "", element("div", "row", text, count), bar("now", choice.now, whole));
  if (prediction.changed) item.append(bar("first", choice.first, whole));
  return item;
}

function answeredLine(prediction) {
  const people = prediction.answered === 1 ? "1 person has answered" : `${prediction.answered} people have answered`;
  return prediction.changed ? `${people}. Full bars: now. Striped bars: what they chose at first.` : `${people}.`;
}

function drawPrediction(prediction) {
  at("asked").textContent = prediction ? prediction.text : "No prediction is shown.";
  at("prediction-heading").textContent = prediction ? `Prediction, lesson ${prediction.lesson}` : "Prediction";
  at("answered").textContent = prediction ? answeredLine(prediction) : "";
  at("choices").replaceChildren(...(prediction ? prediction.choices.map((each) => choiceItem(each, prediction)) : []));
  at("why").textContent = prediction?.why ?? "";
  announce(prediction);
}

// Votes come by the second; what is spoken is only what the teacher does.
function announce(prediction) {
  const now = prediction ? `${prediction.id} ${prediction.why !== null}` : null;
  if (now === shown) return;
  if (shown !== null || now !== null) {
    at("said").textContent = !prediction ? "" : prediction.why ? "The right answer is shown." : "A prediction is shown.";
  }
  shown = now;
}

function solvedItem(exercise, people) {
  const title = element("span", "", `${exercise.lesson}  ${exercise.title}`);
  const count = element("span", "count", `${exercise.solved} of ${people}`);
  const item = element("li", "", element("div", "row", title, count), bar("now", exercise.solved, people));
  if (exercise.names.length) {
    const unnamed = exercise.solved - exercise.names.length;
    const names = element("div", "names", ...exercise.names.flatMap((each) => [element("bdi", "", each), " "]));
    if (unnamed) names.append(element("span", "quiet", `and ${unnamed} without a name`));
    item.append(names);
  }
  return item;
}

function peopleLine(board) {
  const people = board.taking_part;
  if (!people) return "Nobody takes part yet.";
  return `${people === 1 ? "1 person takes part" : `${people} people take part`}, ${board.named.length} with a name.`;
}

function drawControls(board) {
  if (!at("open")) return;
  for (const option of at("question").options) {
    const count = board.answered[option.value] ?? 0;
    option.textContent = count ? `(${count}) ${option.dataset.text}` : option.dataset.text;
  }
  at("close").disabled = !board.prediction;
  at("reveal").disabled = !board.prediction || board.prediction.why !== null;
}

function draw(board) {
  version = board.version;
  at("people").textContent = peopleLine(board);
  drawPrediction(board.prediction);
  at("none").hidden = board.exercises.length > 0;
  at("solved").replaceChildren(...board.exercises.map((each) => solvedItem(each, board.taking_part)));
  drawControls(board);
}

async function look() {
  const answer = await fetch(`board?after=${encodeURIComponent(version)}`, { headers: xsrf, redirect: "error" });
  if (answer.status === 403) return say("You are logged out. Load the page again to log in.");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  if (at("said").dataset.trouble) say("");
  if (answer.status === 200) draw(await answer.json());
  return true;
}

function say(trouble) {
  at("said").textContent = trouble;
  at("said").dataset.trouble = trouble;
  return false;
}

async function keepLooking() {
  let going = true;
  while (going) {
    let wait = EVERY_MS;
    try {
      going = await look();
    } catch {
      say("The room does not answer; this page keeps trying.");
      wait = AFTER_TROUBLE_MS;
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function teach(action, content = {}) {
  const headers = { ...xsrf, "Content-Type": "application/json" };
  try {
    const answer = await fetch(`teach/${action}`, { method: "POST", headers, body: JSON.stringify(content), redirect: "error" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    await look();
  } catch {
    say("That did not reach the room. Load the page again, then try again.");
  }
}

// Only the questions of the chosen lesson are offered; Safari shows hidden options, so they are taken out.
function offer() {
  at("question").replaceChildren(...allQuestions.filter((each) => each.dataset.lesson === at("lesson").value));
  version = ""; // the counts in the options are out of date
}

const allQuestions = at("open") ? [...at("question").options] : [];
if (at("open")) {
  at("lesson").addEventListener("change", offer);
  at("open").addEventListener("click", () => teach("open", { id: at("question").value }));
  at("reveal").addEventListener("click", () => teach("reveal"));
  at("close").addEventListener("click", () => teach("close"));
  at("end").addEventListener("click", async () => {
    await teach("end");
    at("end").closest("details").open = false;
  });
  offer();
}
keepLooking();
