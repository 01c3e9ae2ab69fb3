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

// Shift+Enter scrolls to the next cell, before anybody knows how high the view will be: then it is cut off. Once
// it is there, it is brought into sight, from its controls on where it is higher than the page.
function showWhole(el) {
  const cell = el.closest(".jp-Cell");
  const page = el.closest(".jp-WindowedPanel-outer");
  if (!page || !cell.nextElementSibling?.classList.contains("jp-mod-active")) return;
  const shown = cell.querySelector(".jp-Cell-outputWrapper");
  shown.scrollIntoView({ block: shown.offsetHeight > page.clientHeight ? "start" : "nearest" });
}

// What comes after a question tells its answer. Until one is pressed, the page covers what was not run, from the
// second cell below the question to the next heading. (As a rule in CSS this made JupyterLab slow.)
function coverAnswers() {
  if (window.ampCoversAnswers || !document.querySelector(".jp-Notebook")) return;
  window.ampCoversAnswers = true;
  const open = ".amp-open[class*=amp-live]:not(.jupyter-widgets-disconnected)";
  // a question that nobody was asked is a line of text: with anything richer a page would not be trusted
  const toCome = (cell) => cell.querySelector("[data-mime-type$=stdout]")?.textContent ?? "";
  const isUnasked = (cell) => toCome(cell).includes("(Shift+Enter) to answer a question.");
  const wasRun = (cell) =>
    cell.querySelector(".jp-OutputArea-output") && !toCome(cell).startsWith("Run this cell (Shift+Enter) to ");
  const cover = (notebook) => {
    let below = Infinity; // how far the last open question is above, in cells
    for (const cell of notebook.querySelectorAll(".jp-Cell")) {
      if (cell.querySelector(open) || isUnasked(cell)) below = 0;
      else if (cell.querySelector("h1, h2, h3") || wasRun(cell)) below = Infinity;
      else below += 1;
      cell.classList.toggle("amp-covered", below > 1 && below < Infinity);
    }
  };
  let soon;
  const look = () => {
    soon ??= setTimeout(() => {
      soon = undefined;
      document.querySelectorAll(".jp-Notebook").forEach(cover);
    }, 100);
  };
  new MutationObserver(look).observe(document.body, {
    attributeFilter: ["class"],
    childList: true,
    subtree: true,
  });
  look();
}

// That this runs is what the page is asked: it draws widgets, anywidgets among them.
function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = model.get("rules");
  el.append(style);
  stopWhereItScrolls();
  coverAnswers();
  const drawn = setTimeout(() => showWhole(el), 300);

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
