// A native range input: it has an accessible name and answers to the keyboard, which the handle of
// ipywidgets' own slider does not (axe: aria-input-field-name).
function render({ model, el }) {
  // Every slider loads this file as a module of its own, so a counter here would start again for each.
  const id = `amp-slider-${Math.random().toString(36).slice(2)}`;
  const label = document.createElement("label");
  const input = document.createElement("input");
  const readout = document.createElement("output");
  label.htmlFor = readout.htmlFor = input.id = id;
  input.type = "range";
  input.step = "1";

  const show = () => {
    label.textContent = model.get("label");
    input.min = model.get("min");
    input.max = model.get("max");
    input.value = model.get("value");
    readout.textContent = model.get("readout");
    input.setAttribute("aria-valuetext", model.get("readout"));
    input.disabled = model.get("disabled");
  };
  input.addEventListener("input", () => {
    model.set("value", Number(input.value));
    model.save_changes();
  });
  // JupyterLab would take the arrow keys for moving between cells.
  input.addEventListener("keydown", (event) => event.stopPropagation());
  model.on("change", show);

  el.classList.add("amp-slider");
  el.append(label, input, readout);
  show();
  return () => model.off("change", show);
}

export default { render };
