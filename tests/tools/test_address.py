"""The address and the name for pip are given once; a command rewrites all that repeats them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import address
from tools.address import Address

ROOT = Path(__file__).parents[2]
NEW = Address("somebody-else/Course.2", "halves")
# Who names no package and no address: the command, the import and the folder are called so as well.
NAMED = re.compile(
    r"""pip install [^`\n]*?['" ]amp-lessons\b|(?<![\w./-])amp-lessons\\?\[\w"""
    r"""|metadata\.\w+\(["']amp-lessons"""
)


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A copy of what git tracks, under another address and name."""
    root = tmp_path_factory.mktemp("moved") / "course"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, root], check=True)
    changed = subprocess.check_output(["git", "diff", "--name-only", "HEAD"], cwd=ROOT, text=True).split()
    for name in filter(lambda each: (ROOT / each).exists(), changed):  # tried as it stands here
        shutil.copy(ROOT / name, root / name)
    (root / "environment").symlink_to(root / "docs")  # as somebody has who keeps theirs elsewhere
    return root, list(address.rewrite(root, address.read(root), NEW))


@pytest.mark.thorough
def test_nothing_names_the_old_address_or_the_old_package_afterwards(moved):
    root, changed = moved
    assert address.read(root) == NEW
    assert {"README.md", "pyproject.toml", "notebooks/00_start_here.ipynb"} <= set(changed)
    old = address.read()
    for name in subprocess.check_output(["git", "ls-files"], cwd=root, text=True).split("\n"):
        path = root / name
        if not path.is_file() or name == "tests/tools/test_address.py":
            continue
        text = path.read_bytes().decode("utf-8", "ignore")
        assert old.repository not in text, name
        assert old.pages not in text, name
        assert not NAMED.search(text), f"{name}: {NAMED.search(text)[0]}"


def test_command_import_and_folders_keep_their_names(moved):
    root, _ = moved
    assert "`amp-lessons progress`" in (root / "README.md").read_text("utf-8")
    assert 'amp-lessons = "amp_lessons.cli.cli:main"' in (root / "pyproject.toml").read_text("utf-8")
    assert "\nname: amp-lessons\n" in (root / "skills" / "amp-lessons" / "SKILL.md").read_text("utf-8")
    command = [sys.executable, "-m", "amp_lessons", "--help"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.stdout.startswith("usage: amp-lessons")


@pytest.mark.thorough
@pytest.mark.slow
def test_links_cells_and_readme_agree_under_the_new_address(moved):
    root, _ = moved
    tests = ["tests/test_hosts.py", "tests/test_packaging.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("bad", ["x/y", "https://gitlab.com/x/y", "github.com/x", "github.com/x/y z"])
def test_what_is_no_address_is_answered(bad, capsys):
    assert address.main([bad]) == 2
    assert "is no address: python -m tools.address github.com/owner/name" in capsys.readouterr().err


def test_what_is_no_name_for_pip_is_answered(capsys):
    assert address.main(["github.com/x/y", "--package", "x y"]) == 2
    assert "is no name for pip" in capsys.readouterr().err
