// Tab stops at a picture only where there is more of it than the page is wide. Asked when Tab is pressed: a
// picture may be a new one a moment later, and the page another width. Once for the window, in which each view
// has a copy of this file.
function stopWhereItScrolls() {
  if (window.ampStopsWhereItScrolls) return;
  window.ampStopsWhereItScrolls = true;
  const boxes = () => document.querySelectorAll(".amp-scroll");
  const stops = (event) => {
    if (event.key !== "Tab") return;
    for (const box of boxes()) {
      const stop = box.scrollWidth > box.clientWidth ? 0 : -1;
      if (box.tabIndex !== stop) box.tabIndex = stop;
    }
  };
  const allStop = () => boxes().forEach((box) => (box.tabIndex = 0));
  window.addEventListener("keydown", stops, true);
  window.addEventListener("resize", allStop); // until Tab is pressed: what is too wide can be reached at any time
}

// That this runs is what the page is asked: it draws widgets, anywidgets among them.
function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = model.get("rules");
  el.append(style);
  stopWhereItScrolls();
  if (document.querySelector(".jp-Notebook")) begin(); // of page.js, which stands before this file
  const drawn = setTimeout(() => showWhole(el.closest(".jp-Cell")), 300);

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

  // A kernel that is shut down takes the controls with it, and Jupyter marks those of a restarted one alone.
  // Where the page does not let us hear of it (VS Code, Colab), they stay as they are.
  const session = model.widget_manager?.context?.sessionContext;
  const ended = (_, { newValue }) => {
    if (newValue === null) el.closest(`.${CSS.escape(model.get("view"))}`)?.classList.add("jupyter-widgets-disconnected");
  };
  session?.kernelChanged.connect(ended);

  return () => {
    clearTimeout(drawn);
    window.removeEventListener("keydown", keep, true);
    session?.kernelChanged.disconnect(ended);
  };
}

export default { render };
