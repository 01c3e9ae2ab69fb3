// A native range input: it has an accessible name and answers to the keyboard, which the handle of
// ipywidgets' own slider does not (axe: aria-input-field-name).
function render({ model, el }) {
  const label = document.createElement("label");
  const name = document.createElement("span");
  const track = document.createElement("span");
  const input = document.createElement("input");
  const readout = document.createElement("output");
  input.type = "range";
  input.step = "1";

  const words = () => {
    const value = model.get("value");
    return model.get("beyond") || (model.get("readouts")[value - model.get("min")] ?? String(value));
  };
  const show = () => {
    name.textContent = model.get("label");
    name.style.minWidth = `min(${model.get("label_width")}ch, 100%)`;
    readout.style.minWidth = `min(max(5em, ${model.get("readout_width")}ch), 100%)`;
    input.min = model.get("min");
    input.max = model.get("max");
    input.value = model.get("value");
    readout.textContent = words();
    input.setAttribute("aria-valuetext", words());
    for (const each of [input, less, more]) each.disabled = model.get("disabled");
  };
  const move = () => {
    const value = Number(input.value); // before what is set shows the old one once more
    model.set("beyond", "");
    model.set("value", value);
    model.save_changes();
  };
  input.addEventListener("input", move);
  // A finger sets it where it touches, before it is known whether it scrolls the page: then it stays as it was.
  let before;
  input.addEventListener("pointerdown", () => (before = input.value));
  input.addEventListener("pointercancel", () => {
    input.value = before;
    move();
  });
  // For a finger, which does not meet one position among forty; who has a mouse has a keyboard, too.
  const step = (sign, words, by) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sign;
    button.setAttribute("aria-label", `${model.get("label")}: ${words}`);
    button.addEventListener("click", () => {
      input.stepUp(by);
      move();
    });
    return button;
  };
  model.on("change", show);

  el.classList.add("amp-slider");
  track.className = "amp-track";
  track.append(input);
  label.append(name, track); // an id would not do: every view loads this file anew, and would count from the start
  const [less, more] = [step("−", "one less", -1), step("+", "one more", 1)];
  el.append(label, less, readout, more);
  show();
  return () => model.off("change", show);
}

export default { render };
