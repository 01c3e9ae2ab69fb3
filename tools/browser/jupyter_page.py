"""A learner at JupyterLab: a server on a folder of notebooks, and what one does to them in the browser."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from tools.ports import free_port
from tools.programs import Program

REPOSITORY = Path(__file__).parents[2]
OUTPUTS = ".jp-Notebook .jp-OutputArea"
LIVE = "[class*=amp-live-]"  # the controls of a view, and not what stands in for them in the same cell
START_TIMEOUT_S = 180
RUN_TIMEOUT_S = 300

# JupyterLab looks for pages that a server without extensions does not have; the browser calls that an error.
_JUPYTERLABS_OWN_NOISE = ("Failed to load resource: the server responded with a status of 404",)


class LabServer:
    """JupyterLab as ``amp-lessons lab`` starts it, with Jupyter's own folders in ``private``.

    The command makes the folder ``root`` a learner's copy. Use it in a ``with`` statement: it is up on entry
    and gone on exit.
    """

    def __init__(self, root: Path, private: Path) -> None:
        self.root = root
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.log = private / "jupyterlab.log"
        self._private = private

    def __enter__(self) -> LabServer:
        self._draw_every_cell()
        command = [sys.executable, "-m", "amp_lessons", "lab", str(self.root), *self._options()]
        self._program = Program(command, self.log, cwd=self.root, env=self._environment())
        try:
            self._program.wait_until(self._is_up, START_TIMEOUT_S)
        except BaseException:
            self._program.end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._program.end()

    @property
    def progress(self) -> Path:
        """The folder of the learner's record."""
        return self._private / "progress"

    def url(self, path: str = "/lab") -> str:
        """Return the address of a page of this server, token included."""
        return f"http://127.0.0.1:{self.port}{quote(path)}?token={self.token}"

    def end_kernels(self, path: str = "") -> None:
        """End the kernel of the notebook at ``path``, or of all; each holds some 300 MB."""
        for session in json.load(self._ask("/api/sessions")):
            if path in ("", session["path"]):
                self._ask(f"/api/sessions/{session['id']}", "DELETE").close()

    def forget(self) -> None:
        """End all kernels; forget settings, progress, and the notebooks that lie beside the copy."""
        self.end_kernels()
        for left in (self.root / "notebooks", self._private / "settings", self.progress):
            shutil.rmtree(left, ignore_errors=True)
        self._draw_every_cell()

    def _ask(self, path: str, method: str = "GET") -> HTTPResponse:
        answer: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(self.url(path), method=method), timeout=30
        )
        return answer

    def _options(self) -> list[str]:
        return [
            "--no-browser",
            "--allow-root",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={self.token}",
            "--expose-app-in-browser",
        ]

    def _draw_every_cell(self) -> None:
        """Have JupyterLab keep the cells outside the window on the page, where a test can find them."""
        settings = self._private / "settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')

    def _environment(self) -> dict[str, str]:
        private = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "AMP_LESSONS_HOME": "progress",
        }
        return {
            **os.environ,
            **{name: str(self._private / folder) for name, folder in private.items()},
            "JUPYTER_CONFIG_PATH": "",
            # The kernels' folder is the notebook's, so the package under test has to be named.
            "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])),
        }

    def _is_up(self) -> bool:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            self._ask("/api/status").close()
            return True
        return False


@dataclass
class NotebookPage:
    """One notebook open in JupyterLab. ``errors`` collects what the page and its console complain about."""

    page: Page
    server: LabServer
    errors: list[str] = field(default_factory=list)
    path: str = ""

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(f"page: {error}"))
        self.page.on("console", self._listen)

    def open(self, path: str, unfolded: bool = True) -> NotebookPage:
        """Open the notebook at ``path``, relative to the server's root, and wait for its kernel.

        What is folded below a heading is unfolded, unless it shall stay as it is for a learner.
        """
        # In a workspace of its own: the default one brings back whatever another window had open.
        self.path = path
        self.page.goto(self.server.url(f"/lab/workspaces/{secrets.token_hex(4)}/tree/{path}"))
        expect(self.page.locator(".jp-Notebook")).to_be_visible(timeout=1000 * START_TIMEOUT_S)
        self._in_jupyterlab(
            "await panel.sessionContext.ready; await panel.sessionContext.session.kernel.info",
            START_TIMEOUT_S,
        )
        if unfolded:
            self._in_jupyterlab("await app.commands.execute('notebook:expand-all-headings')")
        return self

    def run_all(self) -> NotebookPage:
        """Run every cell and wait until the kernel has nothing left to do; AssertionError if one raised."""
        self._in_jupyterlab("await app.commands.execute('notebook:run-all-cells')")
        raised = self._in_jupyterlab(
            """return [...panel.content.model.cells].flatMap(cell => cell.outputs?.toJSON() ?? [])
                .filter(output => output.output_type === 'error')
                .map(output => `${output.ename}: ${output.evalue}`);"""
        )
        assert not raised, "; ".join(raised)
        self.wait_idle()
        return self

    def run_down_to(self, shown: Locator) -> NotebookPage:
        """Run the cell in whose output ``shown`` is, and all above it."""
        cell = shown.locator("xpath=ancestor::*[contains(@class, 'jp-Cell ')][1]")
        number = cell.evaluate("cell => [...cell.parentElement.children].indexOf(cell)")
        self._in_jupyterlab(
            """panel.content.activeCellIndex = argument;
            await app.commands.execute('notebook:run-all-above');
            await app.commands.execute('notebook:run-cell');""",
            argument=number,
        )
        return self

    def restart(self) -> None:
        """Restart the kernel, as the button does, and leave what is on the page."""
        self._in_jupyterlab("await panel.sessionContext.restartKernel()")

    def save(self) -> None:
        """Save the notebook."""
        self._in_jupyterlab("await app.commands.execute('docmanager:save')")

    def end_kernel(self) -> None:
        """End the notebook's kernel, and leave what is on the page."""
        self._in_jupyterlab("await panel.sessionContext.shutdown()")

    def reopen(self) -> NotebookPage:
        """Open the same notebook again, in the same window; if it has no kernel, it gets a new one."""
        return self.open(self.path)

    def set_theme(self, name: str) -> None:
        """Change JupyterLab's theme to the one called ``name``: "JupyterLab Dark", say."""
        self._in_jupyterlab(
            "await app.commands.execute('apputils:change-theme', { theme: argument })", argument=name
        )
        self.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)

    def lose_widgets(self) -> None:
        """From now on keep the page from hearing of new widgets, as where it begins to listen too late."""
        self._in_jupyterlab(
            """panel.sessionContext.session.kernel.registerCommTarget(
                'jupyter.widget', comm => { comm.close(); });"""
        )

    def watch_for(self, *words: str) -> Callable[[], list[str]]:
        """Watch the notebook from now on; return what says which of ``words`` could be read there, ever."""
        self.page.evaluate(
            """words => {
                const notebook = document.querySelector('.jp-Notebook');
                window.ampRead = [];
                const read = () => {
                    const text = notebook.innerText;
                    window.ampRead.push(...words.filter(each => text.includes(each)));
                };
                new MutationObserver(read).observe(notebook, { subtree: true, childList: true });
            }""",
            words,
        )
        return lambda: sorted(set(self.page.evaluate("window.ampRead")))

    def wait_idle(self) -> None:
        """Wait until the kernel has dealt with everything sent to it, widget events included."""
        self._in_jupyterlab(
            """const kernel = panel.sessionContext.session.kernel;
            await kernel.requestKernelInfo();
            while (kernel.status !== 'idle') await new Promise(done => setTimeout(done, 20));"""
        )

    def widget(self, label: str) -> Locator:
        """Return the widget whose description is ``label``."""
        description = self.page.locator(f'{OUTPUTS} .widget-label:text-is("{label}")')
        return description.locator("xpath=ancestor::*[contains(@class, 'jupyter-widgets')][1]").first

    def slider(self, label: str) -> Locator:
        """Return the handle of the slider described by ``label``; it takes the arrow keys."""
        return self.widget(label).locator(".noUi-handle")

    def button(self, label: str) -> Locator:
        """Return the button with this text in a notebook's outputs."""
        return self.page.locator(OUTPUTS).get_by_role("button", name=label, exact=True)

    def card(self, title: str) -> Locator:
        """Return the live card of the exercise with this title."""
        return self.page.locator(f"{OUTPUTS} .amp-card{LIVE}").filter(has_text=title)

    def view_with(self, control: Locator, nth: int = 0) -> Locator:
        """Return the output that the ``nth`` match of ``control`` belongs to."""
        return control.nth(nth).locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')][1]")

    def expect_a_question_to_answer(self, wrong: str, right: str) -> None:
        """Choose by keyboard the wrong option that says ``wrong``, then the one with the letter ``right``."""
        option = self.page.get_by_role("button", name=wrong)
        option.press("Enter")
        quiz = self.view_with(option)
        expect(quiz).to_contain_text("Not quite.")
        quiz.get_by_role("button", name=f"{right})").press("Enter")
        expect(quiz).to_contain_text("Yes.")

    def evaluate(self, code: str) -> str:
        """Run Python in the notebook's kernel, beside its cells, and return what it printed."""
        return self._in_jupyterlab(
            """const kernel = panel.sessionContext.session.kernel;
            const future = kernel.requestExecute({ code: argument, store_history: false });
            let printed = "";
            future.onIOPub = (message) => {
                if (message.header.msg_type === "stream") printed += message.content.text;
                if (message.header.msg_type === "error") printed += message.content.evalue;
            };
            await future.done;
            return printed.trim();""",
            argument=code,
        )

    def screenshot(self, path: Path) -> Path:
        """Save what the browser window shows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path)
        return path

    def serious_axe_violations(self, selector: str = OUTPUTS) -> list[str]:
        """Return axe-core's serious and critical findings inside ``selector``, one line per element."""
        assert self.page.locator(selector).count(), f"nothing on the page matches {selector}"
        found = Axe().run(self.page, context=selector, options={"resultTypes": ["violations"]}).response
        return [
            f"{violation['id']}: {violation['help']} at {' '.join(map(str, node['target']))}"
            for violation in found["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]

    def _in_jupyterlab(self, statements: str, timeout_s: float = RUN_TIMEOUT_S, argument: object = "") -> Any:
        """Run JavaScript with ``app``, the open notebook's ``panel`` and ``argument``; return its value."""
        return self.page.evaluate(
            f"""async ([seconds, argument]) => {{
                const app = window.jupyterapp;
                const panel = app.shell.currentWidget;
                const work = async () => {{ {statements} }};
                const limit = new Promise((_, fail) =>
                    setTimeout(() => fail(new Error(`not done after ${{seconds}} s`)), 1000 * seconds));
                return await Promise.race([work(), limit]);
            }}""",
            [timeout_s, argument],
        )

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_JUPYTERLABS_OWN_NOISE):
            self.errors.append(f"console: {message.text}")
