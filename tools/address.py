"""Give the project another address, and another name for pip: ``python -m tools.address github.com/x/y``.

Both stand in ``pyproject.toml``, under ``[project]``. Links, citations, the first cell of each notebook and
lines such as ``pip install 'name[lab]'`` repeat them, because they are read where no Python runs; this
rewrites all of them. The package that is imported and the command keep their names.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_ADDRESS = re.compile(rf"(?:https://)?github\.com/({_PART}/{_PART}?)(?:\.git)?/?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")  # as pip has it


@dataclass(frozen=True)
class Address:
    """Where the project is: ``repository`` on GitHub, ``owner/name``, and ``package``, what pip installs."""

    repository: str
    package: str

    @property
    def pages(self) -> str:
        """The address of the site, as GitHub Pages makes it of the repository's."""
        owner, name = self.repository.split("/")
        return f"https://{owner.lower()}.github.io/{name}/"


def read(root: Path = ROOT) -> Address:
    """Return what ``pyproject.toml`` says."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return Address(project["urls"]["Repository"].removeprefix("https://github.com/"), project["name"])


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite every file that names the address or the package; say which."""
    parser = argparse.ArgumentParser(prog="python -m tools.address", description=__doc__.splitlines()[0])
    parser.add_argument("repository", help="where the project will be: github.com/owner/name")
    parser.add_argument("--package", help="its name for pip; as before, if it is left out")
    chosen = parser.parse_args(argv)
    old, asked = read(), _ADDRESS.fullmatch(chosen.repository)
    package = chosen.package or old.package
    if not asked or not _NAME.fullmatch(package):
        wrong = (
            f"--package {package!r} is no name for pip" if asked else f"{chosen.repository!r} is no address"
        )
        print(f"{wrong}: python -m tools.address github.com/owner/name --package name", file=sys.stderr)
        return 2
    changed = list(rewrite(ROOT, old, Address(asked[1], package)))
    print("\n".join([*changed, f"{len(changed)} files now say {asked[1]} and {package}"]))
    return 0


def rewrite(root: Path, old: Address, new: Address) -> Iterator[str]:
    """Rewrite the files of ``root`` that git tracks, or would; yield the names of those that changed."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in sorted(set(subprocess.check_output(listed, cwd=root, text=True).splitlines())):
        path = root / name
        try:
            before = path.read_bytes().decode("utf-8")  # as it is: line ends stay
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a picture, a file that was deleted, a link to a folder
        after = _readdressed(before, old, new)
        if after != before:
            path.write_bytes(after.encode("utf-8"))
            yield name


def _readdressed(text: str, old: Address, new: Address) -> str:
    """Return the text with the new address and name, wherever it can only be they that are meant."""
    package = re.escape(old.package)
    text = text.replace(old.pages, new.pages)
    text = re.sub(rf"(?<![\w.-]){re.escape(old.repository)}(?![\w-])", new.repository, text)
    text = re.sub(rf"(?<![\w./-]){package}(?=\\?\[\w)", new.package, text)  # with extras; \[ in expressions
    text = re.sub(rf"(pip install (?:-\S+ )*['\"]?){package}(?![\w-])", rf"\g<1>{new.package}", text)
    text = re.sub(rf"(metadata\.\w+\(['\"]){package}(?=['\"])", rf"\g<1>{new.package}", text)
    text = re.sub(rf'(?m)^(name = "){package}(?="$)', rf"\g<1>{new.package}", text)
    wheels = [re.sub(r"[-_.]+", "_", each.package).lower() for each in (old, new)]
    return re.sub(rf"\b{re.escape(wheels[0])}(?=-\d+\.\d+\S*\.whl)", wheels[1], text)


if __name__ == "__main__":
    sys.exit(main())
