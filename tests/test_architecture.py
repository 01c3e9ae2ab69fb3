"""What `lint-imports` cannot see of the way imports go, and what of PyTorch the code rests on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "amp_lessons"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
COMPUTE = ("autocast", "devices", "formats", "fp8", "measure", "parallel", "precisions", "scaling")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table that follows a heading, before the next one."""
    section = re.split(rf"\n##+ {heading}\n", PAGE)[1].split("\n##")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def sources() -> dict[str, ast.Module]:
    """Return every module of the package, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(ROOT).with_suffix("").parts
        if "_template" not in inside and inside[-1] != "attempts":  # read by authors and by tests
            found[".".join(inside).removesuffix(".__init__")] = ast.parse(path.read_text("utf-8"))
    return found


def imported_by(module: str) -> Iterator[str]:
    """Yield the dotted names of what a module imports, at any depth; of the package, the modules."""
    for node in ast.walk(sources()[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in sources() else node.module


def test_an_exercises_folder_which_is_data_imports_nothing_above_exercises():
    above = [f"amp_lessons.{room}" for room in ("cli", "teaching")]
    above += [f"amp_lessons.course.{room}" for room in ("site", "views", "interview", "routes")]
    upwards = [
        f"{module} imports {name}"
        for module in sources()
        if module.startswith("amp_lessons.course.exercises.")
        for name in imported_by(module)
        if name == "amp_lessons" or any(f"{name}.".startswith(f"{room}.") for room in above)
    ]
    assert upwards == []


def test_the_page_shows_every_room():
    tree = PAGE.split("```")[1]
    inside = [*PACKAGE.glob("*"), *(PACKAGE / "course").glob("*"), *(PACKAGE / "teaching").glob("*")]
    rooms = {path.stem for path in inside if not path.name.startswith("__") and path.suffix in ("", ".py")}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", tree)} == set()


def _prints(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def test_nothing_computes_and_prints():
    printing = [
        f"{module}, line {node.lineno}"
        for module, tree in sources().items()
        if module.split(".")[1:2] and module.split(".")[1] in COMPUTE
        for node in ast.walk(tree)
        if _prints(node)
    ]
    assert printing == []


def internals_used() -> set[str]:
    """Return PyTorch's private names in the code: ``torch._C._nn``, ``torch.utils._pytree``."""
    found = set()
    for module, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found.add(_private(ast.unparse(node)))
        found |= {_private(name) for name in imported_by(module)}
        found |= {
            _private(f"{node.module}.{alias.name}")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
    return found - {""}


_PRIVATE = re.compile(r"torch(\.[A-Za-z]\w*)*?(\._(?!_)\w+)(\._(?!_)\w+)?")


def _private(name: str) -> str:
    """Return a dotted name up to its private part, or up to the second of two in a row; "" if it has none."""
    match = _PRIVATE.match(name)
    return match[0] if match and not name.startswith("torch.ops.") else ""


def test_the_page_lists_what_of_pytorchs_inside_the_code_uses():
    cells = [row[0] for row in rows("What of PyTorch's inside we rest on")]
    listed = {name for cell in cells for name in re.findall(r"`(torch[^`]+)`", cell)}
    used = internals_used()
    assert listed == {name for name in used if not any(other.startswith(f"{name}.") for other in used)}


def test_private_names_are_found_in_any_spelling():
    assert _private("torch.utils._pytree.tree_map") == "torch.utils._pytree"
    assert _private("torch._C._dispatch_key_parse") == "torch._C._dispatch_key_parse"
    assert _private("torch._C.DispatchKey") == "torch._C"
    assert _private("torch.__version__") == _private("torch.nn.functional") == _private("self._torch") == ""


def test_the_readmes_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
