"""What a file of tests rests on in this repository: all that can change what the tests say.

That is what it imports, however deep: of a package that loads names when they are used, the modules of those
names that are used. It is the code that stands in strings, for another process or a kernel, the notebooks and
pages that a string names, and the commands it calls. And it is what lies beside a module: scripts, styles, a
card. What is counted in vain costs time; what is left out lets a mistake wait for its turn.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

OURS = ("amp_lessons", "benchmarks", "classroom", "tests", "tools")
COMMANDS = "amp_lessons.commands"
# It names all commands and loads the one that is called: whoever calls one names it, too.
CLI = "amp_lessons/commands/cli.py"
# What a browser adds to the tests of the rooms below: that it is drawn, and answers.
DRAWN = (
    "amp_lessons/classroom",
    "amp_lessons/commands/lab/",
    "amp_lessons/lessons/",
    "amp_lessons/site/",
    "amp_lessons/views/",
    "classroom/",
    "notebooks/",
    "tests/",
    "tools/",
)
_IMPORT = re.compile(rf"(?:from\s+((?:{'|'.join(OURS)})[\w.]*)\s+)?import\s+([\w.]+(?:,\s*\w+)*)")
_CALLS = re.compile(rf"{COMMANDS}|[\"'\\s]amp[-_]lessons[\"'\\s]")
_BY_A_COMPUTED_NAME = re.compile(r"import_module\(f\"\{__(?:package|name)__\}")
_DOTTED = re.compile(rf"\b(?:{'|'.join(OURS)})(?:\.\w+)+\.?")


class Contents:
    """What the files of a repository rest on; ``files`` are those that git knows, relative to ``root``."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self.root = root
        self.files = frozenset(files)
        self._uses: dict[str, frozenset[str]] = {}

    def of(self, *files: str, closed: frozenset[str] = frozenset()) -> set[str]:
        """Return some files and all that they rest on; it is not looked into those that are ``closed``."""
        seen: set[str] = set()
        waiting = set(files)
        while waiting:
            file = waiting.pop()
            seen.add(file)
            waiting |= self.uses(file) - seen if file not in closed else set()
        return seen

    def of_tests(self, file: str) -> set[str]:
        """Return what a file of tests rests on, with the fixtures of its folder and of those above.

        In a browser that is what is drawn: what is computed below has its own tests, and runs in notebooks.
        """
        fixtures = {f"{folder.as_posix()}/conftest.py" for folder in list(Path(file).parents)[:-1]}
        found = self.of(file, *fixtures & self.files)
        return (
            {each for each in found if each.startswith(DRAWN)} if file.startswith("tests/browser/") else found
        )

    def uses(self, file: str) -> frozenset[str]:
        """Return what one file names itself, and what lies beside it."""
        if file not in self._uses:
            self._uses[file] = frozenset(self._used(file))
        return self._uses[file]

    def _used(self, file: str) -> Iterator[str]:
        if file.endswith(".py"):
            yield from self._of_code((self.root / file).read_text("utf-8"), file)
            if not file.startswith("tests/"):
                yield from self._beside.get(file.rpartition("/")[0], ())

    def _of_code(self, code: str, file: str) -> Iterator[str]:
        try:
            tree = ast.parse(code)
        except SyntaxError:  # a stub in a notebook, say
            yield from self._in_text(code)
            return
        nodes = list(ast.walk(tree))
        imported = [each for node in nodes for each in _imports(node)]
        for module, name, _ in imported:
            yield from self._behind(module, name)
        modules = {alias: f"{module}.{name}" if name else module for module, name, alias in imported}
        for module, name in _attributes(nodes, modules):
            yield from self._behind(module, name)
        calls = file.startswith("tests/") and _CALLS.search(code)
        if calls:
            yield from self._behind("amp_lessons", "__main__")
        for text in _texts(nodes) if file != CLI else ():
            yield from self._in_text(text)
            yield from self._named(text, file)
            if calls:
                yield from self._behind(COMMANDS, text.partition(" ")[0])
        folders = _rests_on(nodes)
        if _BY_A_COMPUTED_NAME.search(code):
            folders.append(f"{file.rpartition('/')[0]}/")
        yield from (each for each in self.files if each.startswith(tuple(folders)))

    def _behind(self, module: str, name: str = "") -> Iterator[str]:
        """Yield the file of a module, or of the one that a package loads a name from, and their packages'."""
        while name:
            yield from self._on_the_way_to(module)
            if f"{module}.{name}" in self._modules:
                module, name = f"{module}.{name}", ""
            else:
                module, name = self._stub(module).get(name, (module, ""))
        yield from self._on_the_way_to(module)

    def _on_the_way_to(self, module: str) -> Iterator[str]:
        parts = module.split(".")
        dotted = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        yield from (self._modules[each] for each in dotted if each in self._modules)

    @cached_property
    def _modules(self) -> dict[str, str]:
        dotted = (
            (each.removesuffix(".py").removesuffix("/__init__").replace("/", "."), each)
            for each in self.files
            if each.endswith(".py")
        )
        return dict(dotted)

    @cache  # noqa: B019 (as long as the repository is looked at)
    def _stub(self, module: str) -> dict[str, tuple[str, str]]:
        """Return what a package loads when it is used: names, and of which module which name they are."""
        stub = f"{module.replace('.', '/')}/__init__.pyi"
        if stub not in self.files:
            return {}
        tree = ast.parse((self.root / stub).read_text("utf-8"))
        return {
            alias.asname or alias.name: (f"{module}.{node.module}" if node.module else module, alias.name)
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.level
            for alias in node.names
        }

    def _in_text(self, text: str) -> Iterator[str]:
        """Yield what code in a string imports, and the modules it names."""
        for module, names in _IMPORT.findall(text):
            for name in re.split(r",\s*", names):
                yield from self._behind(module or name, name if module else "")
                for used in re.findall(rf"\b{re.escape(name)}\.(\w+)", text):
                    yield from self._behind(f"{module}.{name}" if module else name, used)
        for dotted in _DOTTED.findall(text):
            if dotted.endswith("."):  # and a name that is put behind it
                folder = dotted.replace(".", "/")
                yield from (each for each in self.files if each.startswith(folder))
            else:
                module, _, name = dotted.rpartition(".")
                yield from self._behind(module, name)
                yield from self._behind(dotted, "__main__")

    def _named(self, text: str, file: str) -> Iterator[str]:
        """Yield the files that a string names, by name, path or pattern; a module's lie in its folder."""
        if not re.fullmatch(r"[\w./*\[\]-]+", text):
            return
        folder = "" if file.startswith("tests/") else f"{file.rpartition('/')[0]}/"
        for each in self._by_ending.get(_ending(text), ()):
            if each.startswith(folder) and fnmatch(f"/{each}", f"*/{text.lstrip('/')}"):
                yield each
                if each == text and each.endswith(".ipynb"):  # and not where all notebooks are only read
                    yield from self._of_code(self._cells(each), each)

    def _cells(self, notebook: str) -> str:
        cells = json.loads((self.root / notebook).read_text("utf-8"))["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")

    @cached_property
    def _by_ending(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in self.files:
            found.setdefault(_ending(each), []).append(each)
        return found

    @cached_property
    def _beside(self) -> dict[str, list[str]]:
        """What is no code, by the folder of the modules beside it, or above it."""
        folders = {each.rpartition("/")[0] for each in self.files if each.endswith(".py")}
        found: dict[str, list[str]] = {}
        for each in self.files:
            if not each.endswith((".py", ".ipynb")):
                above = (folder.as_posix() for folder in Path(each).parents)
                found.setdefault(next((folder for folder in above if folder in folders), ""), []).append(each)
        return found


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2]


def _imports(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield a module, the name taken of it or "", and what that is called here."""
    if isinstance(node, ast.Import):
        ours = (alias for alias in node.names if alias.name.split(".")[0] in OURS)
        yield from ((alias.name, "", alias.asname or alias.name) for alias in ours)
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
        yield from ((node.module, alias.name, alias.asname or alias.name) for alias in node.names)


def _attributes(nodes: list[ast.AST], modules: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the modules that some names stand for, and what the code takes of them."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            module = modules.get(ast.unparse(node.value))
            if module is not None:
                yield module, node.attr


def _rests_on(nodes: list[ast.AST]) -> list[str]:
    """Return the folders in the marks ``rests_on`` of some code."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    marks = (call for call in calls if call.func.attr == "rests_on")
    return [ast.literal_eval(folder) for mark in marks for folder in mark.args]


def _texts(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the strings of some code, but for what is said of it."""
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value
