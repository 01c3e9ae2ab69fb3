"""The values for Zero to JupyterHub fit the chart's own schema, and their sizes what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from classroom import sizes

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "classroom" / "kubernetes"
CHART = json.loads((HERE / "z2jh" / "chart.json").read_text("utf-8"))
VALUES = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))


def merged(below, above):
    """Merge as Helm does: maps by key, everything else as a whole."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: merged(below.get(key), value) for key, value in above.items()}


def test_they_fit_the_schema():
    jsonschema.Draft7Validator(CHART["schema"]).validate(merged(CHART["defaults"], VALUES))


@pytest.mark.parametrize(
    "wrong",
    [
        {"singleuser": {"memory": {"limits": "1G"}}},
        {"singleuser": {"cpu": {"limit": True}}},
        {"singeluser": {}},
        {"hub": {"concurrentSpawnLimit": "many"}},
    ],
)
def test_the_schema_sees_what_is_wrong(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(CHART["schema"]).validate(merged(CHART["defaults"], merged(VALUES, wrong)))


def test_sizes_follow_from_what_was_measured():
    memory = VALUES["singleuser"]["memory"]
    assert memory["guarantee"] == f"{sizes.guarantee_mib(sizes.EVERYDAY)}M"
    assert memory["limit"] == f"{sizes.limit_mib(sizes.EVERYDAY)}M"
    (hungry,) = (each for each in VALUES["singleuser"]["profileList"] if "kubespawner_override" in each)
    needs = {"mem_guarantee": sizes.guarantee_mib(sizes.HUNGRY), "mem_limit": sizes.limit_mib(sizes.HUNGRY)}
    assert hungry["kubespawner_override"] == {name: f"{mib}M" for name, mib in needs.items()}


def test_nobody_comes_in_by_a_name_alone():
    assert CHART["defaults"]["hub"]["config"]["JupyterHub"]["authenticator_class"] == "dummy"
    assert VALUES["hub"]["config"]["JupyterHub"]["authenticator_class"] not in ("dummy", "tmp")


def test_image_and_chart_are_of_one_version_of_jupyterhub():
    image = (FOLDER / "Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG JUPYTERHUB=(.*)$", image, re.MULTILINE)[1] == CHART["jupyterhub"]
    assert CHART["version"] in (FOLDER / "values.yaml").read_text("utf-8")


def test_the_image_starts_servers_as_the_hub_here_does():
    copied = "cp classroom/jupyterhub/begin.sh classroom/jupyterhub/in_the_kernel.py /opt/"
    assert copied in (FOLDER / "Dockerfile").read_text("utf-8")
    assert VALUES["singleuser"]["cmd"][:2] == ["/bin/sh", "/opt/begin.sh"]
