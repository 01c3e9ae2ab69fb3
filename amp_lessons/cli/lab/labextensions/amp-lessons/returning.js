// JupyterLab opens a notebook at its top. This says once in one line where the learner stopped, with a link to
// what is next, on whichever page is opened first; the lesson where that was is opened at the cell to go on with.
// `server.py` puts the place into the page; where there is none, nothing happens. A cell that a link leads to is
// selected, too. And what `page.js` does around cells begins here, before any is run.
(() => {
  const config = JSON.parse(document.getElementById("jupyter-config-data").textContent);
  const { ampStopped: place, ampPage, treePath = "" } = config;
  const PATIENCE_MS = 20_000;
  const LINK = "rendermime:handle-local-link";
  let led = false; // by a link to a cell, since this page was loaded

  const opened = async (app, file) => {
    for (let waited = 0; waited < PATIENCE_MS; waited += 100) {
      const panel = [...app.shell.widgets("main")].find((each) => each.context?.path.split("/").pop() === file);
      if (panel?.content.model?.cells.length) return panel;
      await new Promise((done) => setTimeout(done, 100));
    }
  };

  const goTo = async (panel, id) => {
    const { content } = panel;
    await panel.revealed; // at first JupyterLab selects the first cell
    const index = content.widgets.findIndex((cell) => cell.model.id === id);
    if (index < 0) return false;
    content.activeCellIndex = index;
    await content.scrollToItem(index, "center", 0);
    return true;
  };

  const begin = () => import(URL.createObjectURL(new Blob([ampPage, "begin();"], { type: "text/javascript" })));

  // JupyterLab scrolls to the cell of a link, and leaves the one selected in which the link stands.
  const follow = async (app, { id, args, result }) => {
    if (id !== LINK || !args.id?.startsWith("#cell-id=")) return;
    led = true;
    await result;
    const panel = await opened(app, args.path.split("/").pop());
    if (panel) await goTo(panel, args.id.slice("#cell-id=".length));
  };

  const tell = async (app) => {
    const { label, file, cell } = place.next ?? { label: "Go there", ...place };
    const folder = treePath.slice(0, treePath.lastIndexOf("/") + 1); // where one lesson lies, all do
    const action = { label, commandId: LINK, args: { path: folder + file, id: `#cell-id=${cell}` } };
    const options = { autoClose: PATIENCE_MS, actions: [action] };
    await app.commands.execute("apputils:notify", { message: place.said, type: "default", options });
  };

  const activate = async (app) => {
    void begin();
    app.commands.commandExecuted.connect((_, executed) => void follow(app, executed));
    const stopped = JSON.stringify(place);
    if (!place || sessionStorage.ampStopped === stopped) return;
    sessionStorage.ampStopped = stopped;
    await app.restored;
    if (place.said) await tell(app);
    const panel = await opened(app, place.file);
    if (!panel || led) return;
    if (!(await goTo(panel, place.cell)) && place.next) await goTo(panel, place.next.cell); // a cell may be gone
  };

  const plugin = { id: "amp-lessons:returning", autoStart: true, activate: (app) => void activate(app) };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["amp-lessons"] = {
    init: () => {},
    get: async () => () => ({ __esModule: true, default: plugin }),
  };
})();
