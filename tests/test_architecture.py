"""The code keeps to docs/architecture.md: its rooms, which way imports go, what of PyTorch it rests on."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "amp_lessons"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
DRAWING = {"matplotlib", "ipywidgets", "anywidget", "IPython"}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table that follows a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ROOMS = {row[1].strip("`"): int(row[0]) for row in rows("Three layers, and rooms on floors")}  # top row first
ORDER = list(ROOMS)


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


@pytest.mark.parametrize("module", SOURCES)
def test_imports_only_go_down(module):
    room = room_of(module)
    if room is None:
        return
    for name in imported_by(module):
        target = room_of(name) if name.startswith("amp_lessons.") else None
        if name == "amp_lessons.autocast":  # the face of five rooms
            target = "autocast/islands"
        if target is not None and target != room:
            assert ORDER.index(target) > ORDER.index(room), (
                f"{module} imports {name}: {target} is above {room}"
            )


@pytest.mark.parametrize("module", SOURCES)
def test_below_the_views_nothing_draws(module):
    room = room_of(module)
    if room is not None and ROOMS[room] < 3:
        drawn = {name.partition(".")[0] for name in imported_by(module)} & DRAWING
        assert not drawn, f"{module} imports {drawn}"


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_computes_and_prints(module):
    room = room_of(module)
    if room is not None and ROOMS[room] == 1:
        calls = (node.func for node in ast.walk(SOURCES[module]) if isinstance(node, ast.Call))
        assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


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


def test_the_readme_says_the_minutes_of_each_lesson():
    said = dict(
        re.findall(
            r"\((?:notebooks/)(\S+)\)[^|]*\|[^|]*\| *(\d+) *\|", (ROOT / "README.md").read_text("utf-8")
        )
    )
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        hours, half, minutes = re.search(r"(?:(\d+)(½?) hours)|(\d+) minutes", first).groups()
        expected = int(minutes) if minutes else 60 * int(hours) + (30 if half else 0)
        assert int(said[path.name]) == expected, path.name


def test_the_readme_and_the_first_lesson_describe_the_lessons_alike():
    described = re.compile(r"\]\((?:notebooks/)?(\d\d_\w+\.ipynb)\) *\| *([^|]+?) *\|")
    readme = dict(described.findall((ROOT / "README.md").read_text("utf-8")))
    first = (ROOT / "notebooks" / "00_start_here.ipynb").read_text("utf-8")
    the_map = dict(described.findall(first.replace("\\n", "\n")))
    assert {name: readme[name].replace("`", "") for name in the_map} == the_map
    assert (
        set(readme)
        == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
        == {
            *the_map,
            "00_start_here.ipynb",
        }
    )
