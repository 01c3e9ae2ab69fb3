"""``amp-lessons lab``: JupyterLab, opened on the learner's own copy of the lessons.

The token stays as Jupyter sets it. Five things differ from a bare ``jupyter lab``: the page it lands on, the
lesson where the learner stopped; what kernels do for somebody who comes back (``STARTUP``, unless there is a
PYTHONSTARTUP already); JupyterLab's question about news, which is answered with no; lines of code, which are
wrapped where the page is narrower (unless the learner has set it); and what ``surroundings`` make necessary
(root, a port that is taken, no screen), which is said.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from amp_lessons._base import files
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.cli import typed
from amp_lessons.cli.lab import surroundings
from amp_lessons.course import lessons, progress
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.lessons.shipped import FIRST
from amp_lessons.course.routes import following

JUPYTER_CONFIG = Path(__file__).parent / "jupyter_config"
LABEXTENSIONS = Path(__file__).with_name("labextensions")
STARTUP = Path(__file__).with_name("startup.py")
_LAST_PORT = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a folder, a few options of our own, and every option of ``jupyter lab``."""
    parser.epilog = "Every other option goes to JupyterLab, written as --name=value."
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="your own copy of the lessons, made on first use (default: the one you are in, else my_lessons)",
    )
    parser.add_argument("--no-browser", action="store_true", help="open no browser; the address is printed")
    parser.add_argument(
        "--port", type=typed.whole(), default=surroundings.PORT, help="the first port to try (default: 8888)"
    )
    parser.add_argument("--ip", default="localhost", help="where to listen (default: on this machine alone)")
    parser.add_argument("--copy-only", action="store_true", help="bring the lessons, and start nothing")
    parser.add_argument(
        "--originals", action="store_true", help="open the checkout's own notebooks: for those who write them"
    )
    parser.set_defaults(passed_on=[])


def run(args: argparse.Namespace) -> int:
    """Bring the lessons, start JupyterLab and stay until it ends; 1 with a sentence where that fails."""
    try:
        if args.port > _LAST_PORT:
            raise CannotOpenError(f"--port={args.port}: ports end at {_LAST_PORT}")
        if jupyterlab_installed():
            _refuse_unknown(args.passed_on)
            _refuse_ambiguity(args)
        if args.originals:
            folder = original_lessons()
            root, landing = folder.parent, f"{folder.name}/{FIRST}"
        else:
            root, landing = _own_copy(args.folder)
        here = surroundings.look()
        if here.in_hub or args.copy_only:
            print(f"The lessons are in {root}; begin with {landing}.")
        else:
            _start_jupyterlab([*server_options(root, landing), *_made_ready(args, here), *args.passed_on])
    except CannotOpenError as error:
        return typed.refuse(error)
    return 0


def _made_ready(args: argparse.Namespace, here: surroundings.Surroundings) -> tuple[str, ...]:
    """Print what this machine needs, set the environment accordingly, and return JupyterLab's options."""
    if not jupyterlab_installed():
        raise CannotOpenError(
            f"JupyterLab is not installed for this Python. Install it with: {install_jupyterlab()}"
        )
    try:
        start = surroundings.start(here, args.port, args.ip, no_browser=args.no_browser)
    except OSError as error:
        raise CannotOpenError(str(error)) from error
    for sentence in start.sentences:
        print(sentence, flush=True)
    os.environ.update(start.environment)
    return start.options


def _start_jupyterlab(options: list[str]) -> None:
    os.environ["JUPYTER_CONFIG_PATH"] = config_path(os.environ.get("JUPYTER_CONFIG_PATH", ""))
    os.environ.setdefault("PYTHONSTARTUP", str(STARTUP))  # kernels inherit it
    from jupyterlab.labapp import main

    main(options)


class CannotOpenError(Exception):
    """The lessons cannot be opened; the message says why, and what would help."""


def server_options(root: Path, landing: str) -> list[str]:
    """Return the options that serve ``root`` and land on the notebook ``landing``, a path below it.

    Naming the notebook on the command line instead would make its folder the root of the server.
    """
    return [
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/{landing}",
        f"--LabApp.extra_labextensions_path={LABEXTENSIONS}",
    ]


def config_path(already_set: str) -> str:
    """Return a JUPYTER_CONFIG_PATH that adds this course's settings behind those that are ``already_set``."""
    return os.pathsep.join(filter(None, [already_set, str(JUPYTER_CONFIG)]))


def jupyterlab_installed() -> bool:
    """Return whether this Python can start JupyterLab."""
    return importlib.util.find_spec("jupyterlab") is not None


def install_jupyterlab() -> str:
    """Return the command that installs JupyterLab for this Python."""
    return f"{sys.executable} -m pip install jupyterlab ipykernel"


def own_folder(named: Path | None) -> Path:
    """Return the folder of the learner's copy: the one that was ``named``, else the one for this place."""
    return (named or lessons.folder_for(Path.cwd())).expanduser().absolute()


def original_lessons() -> Path:
    """Return the folder of the lessons as they came. Raises CannotOpenError where they did not come."""
    try:
        return lessons.originals()
    except FileNotFoundError as error:
        raise CannotOpenError(f"{error}") from error


def unwritable(error: OSError, folder: Path) -> CannotOpenError:
    """Explain why ``folder`` could not be written to, and what would help."""
    return CannotOpenError(
        f"{files.why_unwritable(error, folder)}. Nothing of yours was changed. "
        "Another folder can be named: amp-lessons lab FOLDER"
    )


def _own_copy(named: Path | None) -> tuple[Path, str]:
    """Bring the lessons into the learner's folder, print what came; return it and the page to land on."""
    folder = own_folder(named)
    if folder.exists() and not folder.is_dir():
        raise CannotOpenError(f"{folder} is a file, and has to be a folder: amp-lessons lab FOLDER")
    try:
        brought = lessons.bring(folder, original_lessons())
    except OSError as error:
        raise unwritable(error, folder) from error
    for sentence in told(brought):
        print(sentence, flush=True)
    return folder, _landing()


def _landing() -> str:
    """Return the lesson in which the learner stopped, the first one at first; print where that was."""
    try:
        kept = progress.read()
        found = tasks.stopped_at(kept)
        if found is None:
            return FIRST
        if said := following.of_the_morning(kept):
            print(said, flush=True)
        return shipped.head_of(found[0].lesson).file
    except (progress.ProgressError, FileNotFoundError):  # the page itself says what is wrong with the record
        return FIRST


def told(brought: lessons.Brought) -> list[str]:
    """Describe what came into the learner's folder; nothing where nothing came."""
    sentences = []
    if brought.made:
        sentences.append(f"Your own copy of the lessons is in {brought.folder}. Write in it as you like.")
    elif brought.added:
        sentences.append(f"Added to {brought.folder}: {', '.join(brought.added)}.")
    if brought.updated:
        sentences.append(f"New versions of lessons that you had not touched: {', '.join(brought.updated)}.")
    for lesson, beside in brought.beside.items():
        sentences.append(
            f"There is a new version of {lesson}. Yours is as you left it; the new one is {beside.name}, "
            f"beside it. `amp-lessons reset {lesson[:2]}` puts it in place of yours, and keeps yours "
            "under another name."
        )
    return sentences


def _refuse_ambiguity(args: argparse.Namespace) -> None:
    """Refuse ``--browser firefox``: firefox would be taken for the folder."""
    if args.folder is None:
        return
    for option, value in zip(args.passed_on, [*args.passed_on, "--"][1:], strict=True):
        takes_a_value = option.startswith("--") and "=" not in option and option[2:] not in _flags()
        if takes_a_value and value.startswith("--"):
            raise CannotOpenError(
                f"Is {args.folder} the folder, or what {option} is set to? "
                f"Write {option}={args.folder}, or put the folder first."
            )


def _refuse_unknown(passed_on: Sequence[str]) -> None:
    """Refuse what JupyterLab knows no better. Traits, ``--Class.name=value``, may be any extension's."""
    flags, known = _flags(), {*_flags(), *_aliases()}
    for before, word in zip(["", *passed_on], passed_on, strict=False):
        name = _name(word)
        if word.startswith("-") and "." not in name and name not in known:
            ours = ("no-browser", "port", "ip", "copy-only", "originals")
            near = did_you_mean(f"--{name}", [f"--{each}" for each in {*known, *ours} if len(each) > 1])
            raise CannotOpenError(f"Neither the course nor JupyterLab has an option {word!r}; {near}")
        takes_it = before.startswith("-") and "=" not in before and _name(before) not in flags
        if not word.startswith("-") and not takes_it:
            raise CannotOpenError(f"{word!r} is one too many: lab takes one folder")


def _name(option: str) -> str:
    return option.lstrip("-").partition("=")[0]


def _flags() -> Collection[str]:
    """Return JupyterLab's options that take no value, without their dashes."""
    from jupyter_server.serverapp import flags
    from jupyterlab.labapp import LabApp

    return {"help", "help-all", "h", "version", *flags, *LabApp.flags}


def _aliases() -> Collection[str]:
    """Return JupyterLab's options that take a value, without their dashes."""
    from jupyter_server.serverapp import aliases
    from jupyterlab.labapp import LabApp

    return {*aliases, *LabApp.aliases}
