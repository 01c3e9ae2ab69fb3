// A native text input with its name before it, and below it what was wrong with what was typed.
function render({ model, el }) {
  const label = document.createElement("label");
  const name = document.createElement("span");
  const input = document.createElement("input");
  const error = document.createElement("p");
  input.type = "text";
  input.autocomplete = "off";
  input.spellcheck = false;
  error.className = "amp-field-error";
  error.id = `amp-field-${Math.random().toString(36).slice(2)}`; // every view loads this file anew: no counting
  error.setAttribute("aria-live", "polite");
  input.setAttribute("aria-describedby", error.id);

  const describe = () => {
    name.textContent = model.get("label");
    input.placeholder = model.get("placeholder");
    input.disabled = model.get("disabled");
    label.style.width = model.get("width");
  };
  const write = () => {
    if (input.value !== model.get("value")) input.value = model.get("value");
  };
  const complain = () => {
    const said = model.get("error");
    error.textContent = said;
    input.setAttribute("aria-invalid", String(said !== ""));
  };
  input.addEventListener("change", () => {
    model.set("value", input.value);
    model.save_changes();
  });
  // A notebook in JupyterLab hears of Enter without its shortcuts, and takes it from the field.
  input.addEventListener("keydown", (event) => event.stopPropagation());
  for (const named of ["label", "placeholder", "disabled", "width"]) model.on(`change:${named}`, describe);
  model.on("change:value", write);
  model.on("change:error", complain);

  el.classList.add("amp-field");
  label.append(name, input);
  el.append(label, error);
  describe();
  write();
  complain();
  return () => {
    for (const named of ["label", "placeholder", "disabled", "width"]) model.off(`change:${named}`, describe);
    model.off("change:value", write);
    model.off("change:error", complain);
  };
}

export default { render };
