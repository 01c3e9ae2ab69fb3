"""The code keeps to docs/architecture.md: its rooms, which way imports go, what of PyTorch it rests on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "amp_lessons"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
DRAWING = {"matplotlib", "ipywidgets", "anywidget", "IPython"}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table that follows a heading, before the next one."""
    section = re.split(rf"\n##+ {heading}\n", PAGE)[1].split("\n##")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


BUILDINGS = (
    "The classroom",
    "The course",
    "The instruments",
    "What all of them use",
)  # none imports one above
BUILDING = {row[1].strip("`"): building for building in BUILDINGS for row in rows(building)}
ROOMS = {row[1].strip("`"): int(row[0]) for building in BUILDINGS for row in rows(building)}  # top row first
ORDER = list(ROOMS)
FACES = {"amp_lessons.autocast": "autocast/islands", "amp_lessons.views": "views/widgets"}  # of several rooms


def room_of(module: str) -> str | None:
    """Name the room that a module is in, the most particular one; None for the face of several."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if path in ROOMS:
            return path
        if length == 2 and parts[0] == "exercises" and (PACKAGE / path / "card.md").exists():
            return "exercises/*/"
    return None


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the package, by its dotted name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(ROOT).with_suffix("").parts
        if "_template" not in inside and inside[-1] != "attempts":  # read by authors and by tests
            yield ".".join(inside).removesuffix(".__init__"), ast.parse(path.read_text("utf-8"))


SOURCES = dict(sources())


def imported_by(module: str) -> Iterator[str]:
    """Yield the dotted names of what a module imports, at any depth; of the package, the modules."""
    for node in ast.walk(SOURCES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in SOURCES else node.module


def test_every_room_on_the_page_is_there():
    for room in ORDER:
        path = PACKAGE / room.removesuffix("/*/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), room


def test_every_module_is_in_a_room_on_the_page():
    nowhere = [module for module in SOURCES if room_of(module) is None]
    faces = {f"amp_lessons{end}" for end in ("", ".__main__", ".autocast", ".views")}
    assert set(nowhere) == faces


def test_no_room_is_in_two_buildings():
    assert sum(len(rows(building)) for building in BUILDINGS) == len(ROOMS)


def test_the_instruments_import_nothing_of_the_course():
    own = ("The instruments", "What all of them use")
    leading_out = [
        f"{module} imports {name}"
        for module, room in IN_ROOMS
        for name in imported_by(module)
        if BUILDING[room] in own
        if name == "amp_lessons" or BUILDING.get(room_imported(name) or "", own[0]) not in own
    ]
    assert leading_out == []


IN_ROOMS = [(module, room) for module in SOURCES if (room := room_of(module)) is not None]


def room_imported(name: str) -> str | None:
    """Name the room that an imported name is in, of a face the topmost behind it; None for other packages."""
    return FACES.get(name) or (room_of(name) if name.startswith("amp_lessons.") else None)


def test_imports_only_go_down():
    upwards = [
        f"{module} imports {name}: {target} is above {room}"
        for module, room in IN_ROOMS
        for name in imported_by(module)
        if (target := room_imported(name)) not in (None, room) and ORDER.index(target) < ORDER.index(room)
    ]
    assert upwards == []


def test_below_the_views_nothing_draws():
    drawing = [
        f"{module} imports {name}"
        for module, room in IN_ROOMS
        for name in imported_by(module)
        if ROOMS[room] < 3 and name.partition(".")[0] in DRAWING
    ]
    assert drawing == []


def _prints(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def test_nothing_computes_and_prints():
    printing = [
        f"{module}, line {node.lineno}"
        for module, room in IN_ROOMS
        for node in ast.walk(SOURCES[module])
        if ROOMS[room] == 1 and _prints(node)
    ]
    assert printing == []


def internals_used() -> set[str]:
    """Return PyTorch's private names in the code: ``torch._C._nn``, ``torch.utils._pytree``."""
    found = set()
    for module, tree in SOURCES.items():
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
