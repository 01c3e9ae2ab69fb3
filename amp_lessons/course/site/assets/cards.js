// Cards, one at a time: those that are due, then new ones. A grade says in how many days a card comes back; what
// was graded is kept in this browser.
(() => {
  "use strict";
  const DAYS = [1, 3, 7, 21, 60, 150]; // until a card of this box comes back
  const GRADES = { again: () => 0, hard: (box) => box, good: (box) => box + 1, easy: (box) => box + 2 };
  const DAY_MS = 86_400_000;
  const get = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll("section.card")].map((section) => ({
    section,
    id: section.querySelector("h3").id.slice("card-".length),
  }));
  const today = Math.floor(Date.now() / DAY_MS);
  const kept = window.ampKeeping.read("cards");

  // What a browser keeps may be anything: only whole numbers count.
  const record = ({ id }) => {
    const found = Object.hasOwn(kept, id) ? kept[id] : null;
    return Number.isInteger(found?.box) && Number.isInteger(found?.due) ? found : null;
  };
  const CHOICES = ["topic", "level", "lesson"];
  const isChosen = ({ section }) =>
    CHOICES.every((name) => !get(name).value || section.dataset[name] === get(name).value);

  const next = () => {
    const chosen = cards.filter(isChosen);
    const due = chosen.filter((each) => record(each)?.due <= today);
    return due[0] ?? chosen.find((each) => !record(each)) ?? null;
  };

  const button = (text, pressed) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", pressed);
    return made;
  };

  const say = () => {
    const chosen = cards.filter(isChosen);
    const practised = chosen.filter(record);
    const due = practised.filter((each) => record(each).due <= today).length;
    get("status").textContent = `${chosen.length} cards, ${practised.length} practised, ${due} due today.`;
  };

  const grade = (card, name) => {
    const box = Math.min(GRADES[name](record(card)?.box ?? 0), DAYS.length - 1);
    kept[card.id] = { box, due: today + (name === "again" ? 0 : DAYS[box]) };
    window.ampKeeping.write("cards", kept);
    // One that was not known comes again, but behind the others.
    if (name === "again") cards.push(...cards.splice(cards.indexOf(card), 1));
    show(next(), true);
  };

  const show = (card, focused, atFirst = false) => {
    const box = get("card");
    box.replaceChildren();
    say();
    if (!card) {
      const done = document.createElement("p");
      done.textContent = "That is all for today.";
      box.append(done);
      return;
    }
    const copy = card.section.cloneNode(true);
    copy.querySelector("h3").removeAttribute("id");
    const answer = copy.querySelector(".answer");
    answer.tabIndex = -1;
    const grades = document.createElement("p");
    const turn = button("Turn the card", () => {
      answer.hidden = false;
      turn.hidden = true;
      grades.hidden = false;
      answer.focus({ preventScroll: true }); // question and answer's beginning stay in sight
    });
    answer.hidden = grades.hidden = true;
    for (const name of Object.keys(GRADES)) grades.append(button(name, () => grade(card, name)), " ");
    box.append(...copy.childNodes, turn, grades);
    if (focused) turn.focus();
    // A link to a card in the list stays what it is until the reader goes on.
    if (atFirst && location.hash) return;
    const lesson = get("lesson").value;
    try {
      history.replaceState(null, "", `?${new URLSearchParams({ card: card.id, ...(lesson && { lesson }) })}`);
    } catch {}
  };

  for (const name of CHOICES) get(name).addEventListener("change", () => show(next(), false));
  const given = new URLSearchParams(location.search);
  const asked = given.get("card");
  get("lesson").value = given.get("lesson") ?? ""; // a lesson leads to its own cards
  get("deck").hidden = false;
  show(cards.find(({ id }) => id === asked || `#card-${id}` === location.hash) ?? next(), false, true);
})();
