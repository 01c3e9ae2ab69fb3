"""The doors of a public project: workflows, forms, citation, dev container. What they name is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import yaml

from amp_lessons.cli import cli
from tests.test_packaging import PROJECT, ROOT
from tools import release

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("[0-9]*.yml"))
TARGETS = set(re.findall(r"(?m)^([\w./-]+)(?: [\w-]+)*:(?!=)", (ROOT / "Makefile").read_text("utf-8")))

in_every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def steps(path):
    return [step for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values() for step in job["steps"]]


@pytest.mark.few
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("dependabot", [GITHUB / "dependabot.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_github_can_read_them(schema, files):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def expect_that_they_can_be_run(commands):
    for target in re.findall(r"\bmake (?!-)([\w./-]+)", commands):
        assert target in TARGETS, f"make {target}"
    for module in re.findall(r"python -m ((?:tools|classroom|benchmarks)[\w.]*)", commands):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), f"python -m {module}"
    for command in re.findall(r"(?<![\w-])amp-lessons ([a-z]+)", commands):
        assert command in {name for name, _ in cli.COMMANDS}, f"amp-lessons {command}"


@in_every_workflow
def test_what_a_workflow_runs_is_there(path):
    expect_that_they_can_be_run("\n".join(step.get("run", "") for step in steps(path)))


@in_every_workflow
def test_no_workflow_may_write_but_in_the_job_that_publishes(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in workflow["jobs"].items() if "write" in str(job.get("permissions"))}
    assert writing <= {"publish", "deploy"}


def test_what_the_dev_container_runs_is_there():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    expect_that_they_can_be_run(container["postCreateCommand"])
    (opened,) = container["customizations"]["codespaces"]["openFiles"]
    assert (ROOT / opened.replace("my_lessons", "notebooks")).is_file()


def test_the_citation_names_this_version_and_this_address():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    said = citation["version"], citation["license"], citation["repository-code"]
    assert said == (PROJECT["version"], PROJECT["license"], PROJECT["urls"]["Repository"])


def test_a_release_has_notes_and_no_other_version_has():
    said = release.notes(PROJECT["version"])
    assert said.startswith("- ")
    assert "\n## " not in said
    with pytest.raises(ValueError, match=f"the tag says 9.9.9, pyproject.toml {PROJECT['version']}"):
        release.notes("9.9.9")


def test_a_release_without_notes_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# What changed\n\n## 1.0.0\n\n## 0.9.0\n\n- Something.\n")
    with pytest.raises(ValueError, match=re.escape("no part “## 1.0.0”, or nothing stands in it")):
        release.notes("1.0.0", tmp_path)
