// What JupyterLab's page does around the cells of a lesson: begun once, by `returning.js` when the page is loaded,
// and where the course does not start JupyterLab by the first view that is drawn.
const SHEET = `
/* A cell that tells the answer to an open question; it can be read while it is selected. */
.amp-covered:not(.jp-mod-active, .jp-mod-selected) .jp-Cell-inputWrapper {
  position: relative;
  cursor: pointer;
}
.amp-covered:not(.jp-mod-active, .jp-mod-selected) .jp-Cell-inputWrapper > * {
  filter: blur(5px);
  pointer-events: none;
}
.amp-covered:not(.jp-mod-active, .jp-mod-selected) .jp-Cell-inputWrapper::after {
  content: "Answer the question first, or click here";
  position: absolute;
  inset: 0;
  display: grid;
  place-items: center;
  color: var(--jp-ui-font-color1);
  font-size: 14px;
  font-weight: 600;
}
/* A cell that is run again loses what it showed until there is something new. If the browser kept the next cell in its
   place meanwhile, the page would go on by that height with each run. */
.amp-ran + .jp-Cell.jp-mod-active {
  overflow-anchor: none;
}`;

// What comes after a question tells its answer. Until one is pressed, the page covers what was not run, from the
// second cell below the question to the next heading. (As a rule in CSS this made JupyterLab slow.)
const OPEN = ".amp-open[class*=amp-live]:not(.jupyter-widgets-disconnected)";
// a question that nobody was asked is a line of text: with anything richer a page would not be trusted
const toCome = (cell) => cell.querySelector("[data-mime-type$=stdout]")?.textContent ?? "";
// that line stands there again where the page was not saved: `server.py` knows what was answered all the same
const ANSWERED = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}").ampAnswered ?? [];
const wasAnswered = (cell) => ANSWERED.includes(cell.textContent.match(/views\.Quiz\("([\w.]+)"\)/)?.[1]);
const isUnasked = (cell) => toCome(cell).includes("(Shift+Enter) to answer a question.") && !wasAnswered(cell);
const isAtWork = (cell) => cell.querySelector(".jp-InputPrompt")?.textContent.includes("*");
const isEnd = (cell) =>
  toCome(cell).includes("see what you have done here") ||
  cell.querySelector(".jp-RenderedMarkdown")?.textContent.trim().startsWith("End of lesson");
const wasRun = (cell) =>
  cell.querySelector(".jp-OutputArea-output") && !toCome(cell).startsWith("Run this cell (Shift+Enter) to ");

function cover(notebook) {
  let below = Infinity; // how far the last open question is above, in cells
  for (const cell of notebook.querySelectorAll(".jp-Cell")) {
    if (cell.querySelector(OPEN) || isUnasked(cell)) below = 0;
    else if (cell.querySelector("h1, h2, h3") || isEnd(cell) || wasRun(cell)) below = Infinity;
    else below += 1;
    cell.classList.toggle("amp-covered", below > 1 && below < Infinity);
    if (!isAtWork(cell)) cell.classList.toggle("amp-ran", Boolean(wasRun(cell)));
  }
}

// anywidget gives a widget's script two seconds to be there. If a busy machine takes longer, the widget is drawn, and
// hears nothing of the kernel ever after: its slider moves, its picture does not. So it is given time.
const SCRIPT_MS = 20_000;

function letScriptsTakeTheirTime() {
  const timeout = AbortSignal.timeout;
  AbortSignal.timeout = (ms) => {
    const isAnywidgets = new Error().stack?.includes("anywidget");
    return timeout.call(AbortSignal, isAnywidgets ? Math.max(ms, SCRIPT_MS) : ms);
  };
}

// Shift+Enter scrolls to the next cell, before anybody knows how high what this one shows will be. Once it is there, it
// is brought into sight; of what is higher than the page its start.
function showWhole(cell) {
  const page = cell?.closest(".jp-WindowedPanel-outer");
  if (!page || !cell.nextElementSibling?.classList.contains("jp-mod-active")) return;
  const shown = cell.querySelector(".jp-Cell-outputWrapper");
  shown.scrollIntoView({ block: shown.offsetHeight > page.clientHeight ? "start" : "nearest" });
}

function showVerdicts(changes) {
  const added = changes.flatMap(({ addedNodes }) => [...addedNodes]).filter((node) => node.querySelector);
  for (const node of added) {
    const verdict = node.matches(".amp-report") ? node : node.querySelector(".amp-report");
    if (verdict) showWhole(verdict.closest(".jp-Cell"));
  }
}

function begin() {
  if (window.ampBegan) return;
  window.ampBegan = true;
  document.head.append(Object.assign(document.createElement("style"), { textContent: SHEET }));
  let soon;
  const look = () => {
    soon ??= setTimeout(() => {
      soon = undefined;
      document.querySelectorAll(".jp-Notebook").forEach(cover);
    }, 100);
  };
  const changed = (changes) => {
    showVerdicts(changes);
    look();
  };
  new MutationObserver(changed).observe(document.body, {
    attributeFilter: ["class"],
    childList: true,
    subtree: true,
  });
  look();
  letScriptsTakeTheirTime();
}
