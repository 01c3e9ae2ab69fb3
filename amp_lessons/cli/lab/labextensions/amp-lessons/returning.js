// JupyterLab opens a notebook at its top. This goes to the cell where the learner goes on, selects it, and says
// once in one line where that is. `server.py` puts the place into the page; where there is none, nothing happens.
// A cell that a link leads to is selected, too. And what `page.js` does around cells begins here, before any is run.
(() => {
  const { ampStopped: place, ampPage } = JSON.parse(document.getElementById("jupyter-config-data").textContent);
  const PATIENCE_MS = 20_000;
  const LINK = "rendermime:handle-local-link";

  const opened = async (app, file) => {
    for (let waited = 0; waited < PATIENCE_MS; waited += 100) {
      const panel = [...app.shell.widgets("main")].find((each) => each.context?.path.split("/").pop() === file);
      if (panel?.content.model?.cells.length) return panel;
      await new Promise((done) => setTimeout(done, 100));
    }
  };

  const goTo = async (panel, id) => {
    const { content } = panel;
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
    await result;
    const panel = await opened(app, args.path.split("/").pop());
    if (panel) await goTo(panel, args.id.slice("#cell-id=".length));
  };

  const activate = async (app) => {
    void begin();
    app.commands.commandExecuted.connect((_, executed) => void follow(app, executed));
    const where = place && `${place.file}#${place.cell}`;
    if (!place || sessionStorage.ampStopped === where) return;
    await app.restored;
    const panel = await opened(app, place.file);
    if (!panel) return;
    sessionStorage.ampStopped = where;
    await panel.revealed;
    if (!(await goTo(panel, place.cell)) && place.next) await goTo(panel, place.next.cell); // a cell may be gone
    if (!place.said) return;
    const folder = panel.context.path.slice(0, -place.file.length);
    const actions = [place.next].filter(Boolean).map(({ label, file, cell }) => ({
      label,
      commandId: LINK,
      args: { path: folder + file, id: `#cell-id=${cell}` },
    }));
    const options = { autoClose: PATIENCE_MS, actions };
    await app.commands.execute("apputils:notify", { message: place.said, type: "default", options });
  };

  const plugin = { id: "amp-lessons:returning", autoStart: true, activate: (app) => void activate(app) };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["amp-lessons"] = {
    init: () => {},
    get: async () => () => ({ __esModule: true, default: plugin }),
  };
})();
