// That this runs is what the page is asked: it draws widgets, anywidgets among them.
function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = model.get("rules");
  el.append(style);

  // JupyterLab has a meaning for most keys, in a view as well: "b" on the button of an answer would make a cell,
  // an arrow in a list go to the next one. Keys that come alone are the view's; Shift+Enter runs a cell as ever.
  // The window hears of a key before JupyterLab does, which looks for this attribute from the focused element on.
  const keep = (event) => {
    const view = el.isConnected && el.closest(`.${CSS.escape(model.get("view"))}`);
    if (!view || !view.contains(event.target)) return;
    const alone = !event.ctrlKey && !event.metaKey && !event.altKey && !(event.shiftKey && event.key === "Enter");
    event.target.toggleAttribute("data-lm-suppress-shortcuts", alone);
  };
  window.addEventListener("keydown", keep, true);
  return () => window.removeEventListener("keydown", keep, true);
}

export default { render };
