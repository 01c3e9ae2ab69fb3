"""The report as programs read it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from amp_lessons import audit
from amp_lessons.audit import Report
from amp_lessons.formats.dtypes import dtype_name
from tests.audit.report.samples import report

EMPTY = Report(findings=()).to_dict()


@pytest.mark.parametrize("there", [report(), Report(findings=()), audit.of_ranks([report(), report()])])
def test_a_report_comes_back_as_it_was(there):
    back = Report.from_json(there.as_json())
    assert back == there
    assert back.to_dict() == there.to_dict()  # norms, which censuses are compared without, too
    assert Report.from_dict(there.to_dict()) == there


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_it_is_json_that_any_parser_takes_and_keeps_what_json_has_no_number_for(loss):
    steps = (replace(report().steps[0], loss=loss),)
    text = replace(report(), steps=steps).as_json()

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert isinstance(json.loads(text, parse_constant=refuse)["steps"][0]["loss"], str)
    assert repr(Report.from_json(text).steps[0].loss) == repr(loss)


def test_every_dtype_of_pytorch_comes_back_in_a_layer_that_may_be_called_nan():
    dtypes = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
    names = {what: dtype_name(dtype) for what, dtype in dtypes.items()}
    layer = replace(report().layers["head"], name="NaN", dtype_names=names)
    back = Report.from_json(replace(report(), layers={"NaN": layer}).as_json())
    assert (back.layers["NaN"].name, back.layers["NaN"].dtypes) == ("NaN", dtypes)


def test_dtypes_are_pytorchs_when_they_are_asked_for():
    there = report()
    assert there.precision.autocast == (torch.float16,)
    assert replace(there.precision, by_hand_names=("bf16",)).by_hand == (torch.bfloat16,)
    assert there.first_nonfinite.before[0].dtype == torch.float16
    assert there.layers["body"].dtypes["weight"] == torch.bfloat16
    assert there.layers["body"].counterfactual["bf16"].dtype == torch.bfloat16


def test_a_report_of_version_1_is_read_as_that_of_one_process():
    there = report().to_dict()
    old = without(there, "ranks") | {"version": 1}
    old["findings"] = [without(each, "ranks") for each in there["findings"]]
    old["layers"] = [without(each, "part", "replicated") for each in there["layers"]]
    old["first_nonfinite"] = without(there["first_nonfinite"], "rank")
    assert Report.from_dict(old).to_dict() == there


def without(entry, *keys):
    return {key: value for key, value in entry.items() if key not in keys}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[]", "no report of an audit"),
        ('{"schema": "something else"}', "no report of an audit"),
        ("[" * 100_000, "nested too deeply"),
        ("nonsense", "Expecting value"),
        ('{"schema": "amp-lessons audit report", "version": 99}', "only versions up to 2 are known"),
        ('{"schema": "amp-lessons audit report", "version": 1}', "it lacks"),
        (json.dumps(EMPTY | {"steps": [{"index": 0}]}), "damaged: steps: it lacks"),
        (json.dumps(EMPTY | {"findings": [{}]}), "damaged: findings: it lacks"),
        (json.dumps(EMPTY | {"version": 1, "findings": [1]}), "damaged: TypeError"),
    ],
)
def test_what_is_no_report_is_refused(text, answer):
    with pytest.raises(ValueError, match=answer):
        Report.from_json(text)


_MAPPINGS = {"dtypes", "fates", "counterfactual", "underflowed", "subnormal", "normal", "overflowed"}
# reports of this version without them have been written
_ADDED = {"precision", "ended_at", "by_hand", "backwards"}


def records(value, key=""):
    """Yield all records of a document; the keys of mappings are free."""
    if isinstance(value, dict) and key not in _MAPPINGS:
        yield value
    for name, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, (dict, list)):
            yield from records(each, str(name))


def test_a_report_that_lacks_a_key_anywhere_is_refused():
    there = audit.of_ranks([report(), report()]).to_dict()
    for record in records(there):
        for key in set(record) - _ADDED:
            value = record.pop(key)
            with pytest.raises(ValueError, match=r"this report|no report of an audit"):
                Report.from_dict(there)
            record[key] = value
    assert Report.from_dict(there).to_dict() == there


@pytest.mark.parametrize(
    ("key", "value"),
    [("loss", "much"), ("happened", 1), ("index", None), ("scale", [1.0]), ("index", True)],
)
def test_a_value_of_another_type_is_named(key, value):
    there = report().to_dict()
    there["steps"][0][key] = value
    with pytest.raises(ValueError, match=f"damaged: steps: {key}: it is"):
        Report.from_dict(there)


def test_a_file_that_an_earlier_version_wrote_is_read_as_it_was_written():
    """Of two ranks, with one of everything: written by 0.3.0, whose code knew each class by itself."""
    text = (Path(__file__).parent / "written_by_0_3_0.json").read_text("utf-8")
    back = Report.from_json(text)
    old = json.loads(text)
    said_later = {
        "precision": None,
        "ended_at": None,
        "steps": [step | {"backwards": 1} for step in old["steps"]],
    }
    assert json.loads(back.as_json()) == old | said_later
    assert [each.rank for each in back.ranks] == [0, 1]
    assert back.ranks[0].scales == ((0, 16.0), (2, 8.0))
    assert back.steps[1].loss == math.inf
    assert back.layers["body"].history[0].counterfactual["fp16"].fates["underflowed"] == {-30: 1, -28: 1}


def test_what_a_later_version_adds_is_left_alone():
    there = report().to_dict()
    later = there | {"weather": "fine", "steps": [each | {"mood": 1} for each in there["steps"]]}
    assert Report.from_dict(later) == report()


def test_a_dtype_that_this_pytorch_lacks_is_shown_and_refused_where_it_is_asked_for():
    back = Report.from_json(report().as_json().replace('"weight": "bf16"', '"weight": "float3"'))
    assert "weights in fp32 and float3" in str(back)
    with pytest.raises(ValueError, match="no dtype 'float3'"):
        print(back.layers["body"].dtypes)


def test_reading_joining_and_rendering_need_no_pytorch(tmp_path):
    (tmp_path / "r.json").write_text(report().as_json(), "utf-8")
    code = """
import sys
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.report.together import joined
report = Report.from_json(open(sys.argv[1], encoding="utf-8").read())
print(len(str(report)), len(str(joined({0: report, 1: report}))), "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "r.json"], capture_output=True, text=True, check=True
    )
    joined = audit.of_ranks([report(), report()])
    assert done.stdout == f"{len(str(report()))} {len(str(joined))} False\n"
