// One native toggle button per bit, in one group per field. The whole row is a single tab stop: arrow keys
// move along it, space flips the bit, 0 and 1 write one and move on.
function render({ model, el }) {
  let buttons = [];
  let built = "";
  let current = 0;

  const moveTo = (i) => {
    current = i;
    buttons.forEach((button, j) => (button.tabIndex = j === current ? 0 : -1));
  };

  const write = (i, bit) => {
    const bits = [...model.get("bits")];
    bits[i] = bit;
    model.set("bits", bits.join(""));
    model.save_changes();
  };

  const makeButton = (name) => {
    const button = document.createElement("button");
    const i = buttons.length;
    button.type = "button";
    button.title = name;
    button.setAttribute("aria-label", name);
    button.addEventListener("focus", () => moveTo(i)); // however it got there: a page reader may have moved it
    button.addEventListener("click", () => {
      button.focus(); // Safari does not focus a button that is clicked
      write(i, model.get("bits")[i] === "1" ? "0" : "1");
    });
    buttons.push(button);
    return button;
  };

  const makeField = ({ name, colour, tint, bits }) => {
    const field = document.createElement("div");
    const row = document.createElement("div");
    const label = document.createElement("div");
    field.className = "amp-bits-field";
    field.style.setProperty("--colour", colour);
    field.style.setProperty("--tint", tint);
    row.className = "amp-bits-row amp-paper";
    label.className = "amp-bits-label";
    label.textContent = name;
    row.append(...bits.map(makeButton));
    field.append(row, label);
    return field;
  };

  const show = () => {
    const fields = model.get("fields");
    const bits = model.get("bits");
    if (built !== JSON.stringify(fields)) {
      built = JSON.stringify(fields);
      buttons = [];
      el.replaceChildren(...fields.map(makeField));
      moveTo(0);
    }
    el.setAttribute("aria-label", model.get("label"));
    buttons.forEach((button, i) => {
      button.textContent = bits[i];
      button.setAttribute("aria-pressed", String(bits[i] === "1"));
    });
  };

  el.addEventListener("keydown", (event) => {
    const target = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: buttons.length - 1 };
    if (event.key === "0" || event.key === "1") write(current, event.key);
    if (event.key in target || event.key === "0" || event.key === "1") {
      const i = target[event.key] ?? current + 1;
      buttons[Math.min(Math.max(i, 0), buttons.length - 1)].focus();
      event.preventDefault();
    }
  });
  model.on("change", show);

  el.classList.add("amp-bits");
  el.setAttribute("role", "group");
  show();
  return () => model.off("change", show);
}

export default { render };
