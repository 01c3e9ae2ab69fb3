"""What ``make gpu`` measures, every step on the CPU, in small: hardly a line is first run on a GPU.

Times say nothing here; what is looked at is what is compared with what.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from amp_lessons import bench as amp_bench
from amp_lessons.bench import cases, folders
from amp_lessons.bench.results import read
from amp_lessons.bench.workloads import Size
from amp_lessons.scaling import census as count
from amp_lessons.views import source_table
from tests.bench.tiny import TinyWorkload
from tools.gpu import child, found
from tools.gpu.found import NotPossibleError, Place
from tools.gpu.steps import (
    STEPS,
    autocast_rules,
    bench,
    census,
    compiled,
    gpu_tests,
    notebooks,
    peaks,
    products,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path) -> Place:
    return Place("cpu", "small", str(tmp_path / "bench"))


@pytest.fixture
def tiny(monkeypatch):
    """A model of microseconds, known to the bench and to the source."""
    pytest.importorskip("transformers")
    for table in (amp_bench.WORKLOADS, amp_bench.SOURCE_MODELS):
        monkeypatch.setitem(table, "Tiny", TinyWorkload())
    cases.predicted_bytes.cache_clear()

    def troubled(error: Exception) -> None:
        def trouble() -> None:
            raise error

        monkeypatch.setitem(amp_bench.WORKLOADS, "Tiny", TinyWorkload(trouble))

    return troubled


def figures(found_here) -> dict[str, object]:
    return {figure.name: figure.value for figure in found_here.figures}


def wrong(found_here) -> list[found.Agreement]:
    return [agreement for agreement in found_here.agreements if not agreement.agrees]


def test_every_step_has_a_name_of_its_own_and_names_its_parts(place):
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        assert 0 < step.usual_s < step.limit_s < 600
        names = importlib.import_module(step.module).parts(place)
        assert isinstance(names, tuple)
        assert len(set(names)) == len(names) > 0


def test_all_four_models_are_predicted_in_each_precision(place):
    pytest.importorskip("transformers")
    assert set(peaks.parts(place)) == {
        f"{model} {precision}" for model in amp_bench.SOURCE_MODELS for precision in ("fp32", "fp16", "bf16")
    }


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_predicted_peak_stands_beside_the_one_of_a_real_step(tiny, place, precision):
    came = peaks.run(f"Tiny {precision}", place)
    (peak,) = came.agreements
    assert peak.agrees
    assert peak.claimed == cases.predicted_bytes("Tiny", "small", 8, precision, "cpu")
    assert (peak.about, peak.tolerance, peak.unit) == (f"Tiny {precision}, batch 8", 0.1, "bytes")


def test_memory_that_runs_out_contradicts_the_prediction(tiny, place):
    tiny(torch.OutOfMemoryError("CUDA out of memory"))
    (peak,) = wrong(peaks.run("Tiny fp32", place))
    assert peak.measured == "out of memory"


def test_another_failure_is_none_of_the_predictions(tiny, place):
    tiny(ValueError("no kernel"))
    with pytest.raises(RuntimeError, match="no kernel"):
        peaks.run("Tiny fp32", place)


def test_what_does_not_fit_is_not_possible(tiny, place, monkeypatch):
    monkeypatch.setattr(cases, "free_bytes", lambda device: 100)
    with pytest.raises(NotPossibleError, match="not even a batch of one"):
        peaks.run("Tiny fp32", place)


TESTS = """
import pytest

@pytest.mark.GPU
def test_good(): pass

@pytest.mark.GPU
def test_bad():
    assert 1 == 2, "one is not two"

@pytest.mark.GPU
@pytest.mark.nobody_knows_this_mark
def test_marked(): pass

@pytest.mark.GPU
@pytest.mark.skipif(True, reason="needs a GPU of 2030")
def test_skipped(): pass

@pytest.mark.GPU
def test_broken(nowhere): pass

def test_without_the_mark():
    assert False
""".replace("mark.GPU", "mark.gpu")


@pytest.fixture
def checkout(tmp_path):
    """A folder with tests, and the settings of this one."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text((gpu_tests.ROOT / "pyproject.toml").read_text())

    def write(name: str, text: str) -> str:
        (tmp_path / "tests" / name).write_text(text)
        return f"tests/{name}"

    write.root = tmp_path
    return write


def test_tests_are_told_one_by_one(checkout, place):
    name = checkout("test_some.py", TESTS)
    checkout("test_other.py", 'words = "pytest.mark.gpu"\n')
    assert gpu_tests.parts(place, checkout.root) == (name,)
    came = gpu_tests.run(name, place, checkout.root)
    outcomes = {agreement.about: agreement.measured for agreement in came.agreements}
    assert set(outcomes) == {f"`{name}::test_{each}`" for each in ("good", "bad", "marked", "broken")}
    assert {agreement.about for agreement in wrong(came)} == {
        f"`{name}::test_{each}`" for each in ("bad", "broken")
    }
    assert "one is not two" in outcomes[f"`{name}::test_bad`"]
    assert figures(came) == {"passed": 2, "failed": 2, "skipped": 1}
    assert came.lines == ("skipped: test_skipped: needs a GPU of 2030",)


def test_a_file_whose_package_is_missing_is_not_possible(checkout, place):
    name = checkout("test_lacking.py", "import pytest, nowhere_at_all\ndef test(): pass\n")
    with pytest.raises(NotPossibleError, match="this Python lacks nowhere_at_all"):
        gpu_tests.run(name, place, checkout.root)


def test_a_file_that_cannot_be_read_has_failed(checkout, place):
    name = checkout("test_broken.py", "1 / 0\n")
    (agreement,) = gpu_tests.run(name, place, checkout.root).agreements
    assert "error" in agreement.measured


def test_pytest_that_dies_has_failed(checkout, place):
    name = checkout("test_dies.py", "import os\n\nos._exit(7)\n")
    with pytest.raises(RuntimeError, match="exit status 7 and without a report"):
        gpu_tests.run(name, place, checkout.root)


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("@pytest.mark.gpu", True),
        ("pytestmark = pytest.mark.gpu", True),
        ("    pytest.mark.gpu,", True),
        ("@pytest.mark.gpu_of_2030", False),
        ('words = "pytest.mark.gpu"', False),
        ("# as with pytest.mark.gpu", False),
    ],
)
def test_a_file_has_such_tests_where_the_mark_is_code(checkout, place, line, is_one):
    name = checkout("test_some.py", f"import pytest\n{line}\n")
    assert gpu_tests.parts(place, checkout.root) == ((name,) if is_one else ())


def test_the_tests_of_this_course_are_found(place):
    assert {"tests/autocast/test_gpu.py", "tests/bench/test_cases.py"} <= set(gpu_tests.parts(place))
    assert not [name for name in gpu_tests.parts(place) if "gpu_recording" in name]


@pytest.mark.filterwarnings("ignore")
def test_every_operation_returns_what_its_policy_says(place):
    came = autocast_rules.run("operations", place)
    assert wrong(came) == []
    assert sum(agreement.claimed for agreement in came.agreements) > 80
    assert came.lines == ()


@pytest.mark.filterwarnings("ignore")
def test_an_operation_that_contradicts_its_policy_is_named(place, monkeypatch):
    policy = autocast_rules.autocast.policy
    softmaxes = {name for name in policy("cuda") if name.startswith("aten::softmax")}
    lower = dict.fromkeys(softmaxes, autocast_rules.Policy.LOWER_PRECISION)
    monkeypatch.setattr(autocast_rules.autocast, "policy", lambda device: policy(device) | lower)
    came = autocast_rules.run("operations", place)
    (disagreement,) = wrong(came)
    assert disagreement.about.startswith("torch_fp32")
    assert any(
        line.startswith("softmax (torch_fp32): claimed torch.float16, returned torch.float32")
        for line in came.lines
    )


@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_a_models_ledger_is_written_twice(place, half):
    pytest.importorskip("transformers")
    came = autocast_rules.run(f"ledger of GPT-2 {half}", place)
    assert (len(came.agreements), wrong(came), came.lines) == (2, [], ())
    assert figures(came)["operations"] > 100


def test_ledgers_that_differ_say_where():
    layer, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    here = autocast_rules.autocast.record(layer, x, backward=True)
    there = autocast_rules.autocast.record(layer, x, dtype=torch.bfloat16, backward=True)
    came = autocast_rules.compared("a layer", here, there)
    assert len(wrong(came)) == 2
    assert any("on the CPU alone: " in line and "aten::linear" in line for line in came.lines)
    assert any("on the device: " in line and "bfloat16" in line for line in came.lines)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_products_are_timed_in_two_ways(place, precision):
    came = products.run(precision, place)
    assert [agreement.about for agreement in came.agreements] == [
        f"{precision}, {size} × {size}" for size in products.SMALL_SIZES
    ]
    assert all(agreement.claimed > 0 and agreement.measured > 0 for agreement in came.agreements)
    assert all((agreement.tolerance, agreement.unit) == (0.1, "FLOP/s") for agreement in came.agreements)


def test_the_plain_sweep_counts_what_a_product_computes(monkeypatch):
    calls = []

    def slow_at_first(work) -> float:
        work()
        calls.append(work)
        return 9.0 if len(calls) < 4 else 2.0

    monkeypatch.setattr(products, "host_seconds", slow_at_first)
    assert products.plain_rate(8, "fp32", "cpu", 1.0) == products.CALLS * 2 * 8**3 / 2.0
    assert len(calls) == products.LEAST_ROUNDS
    calls.clear()
    products.plain_rate(8, "fp32", "cpu", 3 * 9.0 + 10 * 2.0)
    assert len(calls) == 13


def test_on_a_gpu_events_mark_begin_and_end(monkeypatch):
    happened = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            happened.append("mark")

        def elapsed_time(self, end) -> float:
            assert happened == ["mark", "work", "mark", "wait"]
            return 1500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: happened.append("wait"))
    assert products.cuda_seconds(lambda: happened.append("work")) == 1.5


@pytest.fixture(autouse=True)
def matmul_setting():
    """Put back what the sweep sets: its own process ends with it."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("kind", census.KINDS)
def test_gradients_are_counted_in_both_places(place, kind):
    came = census.run(kind, place)
    assert wrong(came) == []
    assert len(came.agreements) == len(census.DTYPES)
    assert figures(came)["census of 10,000 gradients"] > 0


def test_a_census_in_words_tells_every_count_and_every_binade():
    values = torch.tensor([0.0, float("inf"), 1e-9, 1e-6, 1.0, 1e6])
    words = census.words(count(values))
    assert words.startswith(
        "zero 1, non-finite 1, underflowed 1, subnormal 1, normal 1, overflowed 1; binades "
    )
    assert census.words(count(values.clone())) == words
    assert census.words(count(values * torch.tensor([1, 1, 1, 1, 2.0, 1]))) != words


def test_a_move_of_the_slider_is_timed_and_counted_again(place):
    came = census.run("slider", place)
    assert wrong(came) == []
    assert len(came.agreements) == 6  # three layers, moved and true
    assert figures(came)["a move of the slider"] > 0


def test_the_bench_writes_a_recording_that_lesson_05_shows(tiny, place, monkeypatch):
    assert "Tiny fp16" in bench.parts(place)
    gpt2 = amp_bench.WORKLOADS["GPT-2"]
    config = {**gpt2.size("small").config, "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    small = Size(2, 8, config)
    monkeypatch.setitem(amp_bench.WORKLOADS, "GPT-2", replace(gpt2, sizes={"full": small, "small": small}))
    for name in ("GPT-2 fp32", "GPT-2 bf16"):
        came = bench.run(name, place, seconds=0.01)
    assert set(figures(came)) == {"batch", "step", "peak", "against eager fp32"}
    recordings = folders.recordings(Path(place.bench_folder))
    assert [len(each.results) for each in recordings] == [2]
    # Put beside those of the course, it is found as they are.
    monkeypatch.setattr(folders, "shipped_folder", lambda: Path(place.bench_folder))
    assert recordings[0] in folders.recordings()
    row = source_table("bf16", models=["GPT-2"]).records[0]
    assert recordings[0].setup.device in row["where"]


def test_a_case_that_failed_is_tried_again(tiny, place, monkeypatch):
    with monkeypatch.context() as patch:
        tiny(ValueError("unlucky"))
        with pytest.raises(RuntimeError, match="failed: ValueError: unlucky"):
            bench.run("Tiny fp32", place, seconds=0.01)
        patch.undo()
    monkeypatch.setitem(amp_bench.WORKLOADS, "Tiny", TinyWorkload())
    assert figures(bench.run("Tiny fp32", place, seconds=0.01))["step"] > 0
    (path,) = Path(place.bench_folder).glob("*.json")
    assert [result.outcome for result in read(path).results.values()] == ["measured"]


def test_what_a_device_does_not_know_is_not_possible(tiny, place):
    with pytest.raises(NotPossibleError, match="cpu has no tf32"):
        bench.run("Tiny tf32", place, seconds=0.01)


def test_compiled_cases_come_from_the_same_bench(tiny, place, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model: model)
    assert compiled.parts(place) == bench.parts(place)
    assert "peak" not in figures(compiled.run("Tiny fp32", place))
    (path,) = Path(place.bench_folder).glob("*.json")
    assert list(read(path).results) == [("Tiny", "fp32", "compiled")]


@pytest.fixture
def notebook(tmp_path):
    """A folder with one notebook of these cells."""
    nbformat = pytest.importorskip("nbformat")

    def write(*sources: str) -> str:
        (tmp_path / "notebooks").mkdir()
        cells = [nbformat.v4.new_markdown_cell("# Title"), *map(nbformat.v4.new_code_cell, sources)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "00_some.ipynb")
        return "notebooks/00_some.ipynb"

    write.root = tmp_path
    return write


def test_a_notebook_runs_to_its_end_and_says_which_cells_raise(notebook, place):
    name = notebook(
        "print('[measured] 3 ms'); print('other'); 1 / 0",
        "import amp_lessons, os; amp_lessons.__name__",
        "'[computed] 5'",
        "import os; print('[measured]', os.path.basename(os.getcwd()))",
    )
    before = (notebook.root / name).read_bytes()
    assert notebooks.parts(place, notebook.root) == (name,)
    came = notebooks.run(name, place, notebook.root)
    (agreement,) = came.agreements
    assert agreement.measured == "cell 1 raised ZeroDivisionError: division by zero"
    assert not agreement.agrees
    assert came.lines[:1] == ("[measured] 3 ms",)
    assert came.lines[-1] == "[measured] notebooks"
    assert figures(came)["cells run"] == 4
    assert figures(came)["took"] > 0
    assert (notebook.root / name).read_bytes() == before


def test_what_a_notebook_shows_is_kept_as_text(notebook):
    nbformat = pytest.importorskip("nbformat")
    cell = nbformat.v4.new_code_cell(
        "",
        outputs=[
            nbformat.v4.new_output("stream", text="[measured] a\nb\n"),
            nbformat.v4.new_output("execute_result", data={"text/plain": "[computed] c", "text/html": "d"}),
            nbformat.v4.new_output("display_data", data={"image/png": "e"}),
        ],
    )
    came = notebooks.found_in(nbformat.v4.new_notebook(cells=[cell]), "n", 1.5)
    assert came.lines == ("[measured] a", "[computed] c")
    assert wrong(came) == []


def test_packages_that_are_missing_are_all_named():
    with pytest.raises(NotPossibleError, match="this Python lacks nowhere_a, nowhere_b"):
        found.needed("json", "nowhere_a", "nowhere_b")
    found.needed("json")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (
            ModuleNotFoundError("No module named 'sklearn.data'", name="sklearn.data"),
            "not possible",
            "lacks sklearn",
        ),
        (ModuleNotFoundError("No module named 'tools.x'", name="tools.x"), "failed", "lacks tools.x"),
        (NotPossibleError("no tf32"), "not possible", "no tf32"),
    ],
)
def test_what_is_lacking_is_told_from_what_is_wrong(error, status, words):
    assert child._status(error) == status
    assert words in child.message(error)
