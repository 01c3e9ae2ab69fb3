"""The race view: driven by Python, on an event loop as in a kernel."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from amp_lessons import training
from amp_lessons.course.material import race
from amp_lessons.course.views import RaceView, widgets
from tests.course.views.hands import press

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_loop_runs")]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Races of 20 steps, on one thread: beside other test processes a pool of threads only waits."""
    build = race.TASKS["digits"]

    def short(device):
        task = build(device)
        return race.Task(task.model, task.loader[:10], task.loss_fn, 0.05, 2, 20, task.chance_loss)

    monkeypatch.setitem(race.TASKS, "digits", short)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def view():
    return RaceView(device="cpu")


async def until(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within ten seconds")


def test_run_trains_to_the_end_and_says_what_came_out(view):
    assert view.caption == (
        "digits, fp32 against fp16 autocast on cpu: 20 steps from the same initial weights, ready to start."
    )
    assert view.run() is view
    ran = view.race
    largest, at = ran.largest_difference
    assert ran.finished
    for words in (
        "finished: step 20 of 20",
        f"Loss {ran.fp32.losses[-1]:.4f} and {ran.amp.losses[-1]:.4f}",
        f"largest difference so far {100 * largest:.2g} %, at step {at + 1}.",
        f"{ran.fp32.seconds:.2f} s and {ran.amp.seconds:.2f} s",
        "0 steps skipped",
    ):
        assert words in view.caption
    assert view._repr_mimebundle_()["text/plain"].startswith("[measured] digits")
    fp32, amp, _ = view.picture._curves
    assert list(fp32.get_ydata()) == ran.fp32.losses
    assert list(amp.get_ydata()) == ran.amp.losses
    assert list(view.picture._difference.get_ydata()) == ran.differences


def test_it_runs_in_the_background_while_other_code_runs_and_is_drawn_at_every_step(view, monkeypatch):
    monkeypatch.setattr(widgets.race, "SLICE_S", 60.0)  # a short race, too
    drawn, show = [], view.show

    def noted(*args, **kwargs):
        drawn.append(view.race.step)
        show(*args, **kwargs)

    async def learner():
        press(view, "Start")
        assert view.running
        assert view.race.step == 0  # starting comes back at once
        seen = set()
        while view.running:
            seen.add(view.race.step)
            await asyncio.sleep(0.001)
        return seen

    monkeypatch.setattr(view, "show", noted)
    assert len(asyncio.run(learner())) > 5
    assert drawn == list(range(21))
    assert "finished" in view.caption


def test_stop_and_go_on_beside_another_view_pressed_too_often_and_start_again(view):
    other = RaceView(dtype="bf16", device="cpu")

    async def learner():
        for label in ("Stop", "Start", "Stop"):
            press(view, label)
        await asyncio.sleep(0.05)
        assert (view.race.step, view.running) == (0, False)
        other.start()
        press(view, "Start")
        first = view._running
        press(view, "Start")
        assert view._running is first
        await until(lambda: view.race.step >= 3)
        press(view, "Stop")
        stopped, caption = view.race.step, view.caption
        await asyncio.sleep(0.1)
        assert view.race.step == stopped
        assert f"stopped: step {stopped} of 20" in caption
        other.stop()
        press(view, "Start")
        await until(lambda: not view.running)
        gone_on = view.race
        press(view, "Start again")
        assert (view.race.step, view.race is gone_on) == (0, False)
        await until(lambda: not view.running)
        return gone_on

    uninterrupted = RaceView(device="cpu").run().race
    for ran in (asyncio.run(learner()), view.race):
        assert ran.amp.losses == uninterrupted.amp.losses
        assert ran.fp32.losses == uninterrupted.fp32.losses


def test_a_screen_reader_hears_of_the_start_a_stop_and_the_end_alone(view):
    """The page is told some ten times a second; what is not announced is there to be read all the same."""
    spoken, pages = [], []

    def listen(change):
        pages.append(change["new"])
        if 'figcaption aria-live="polite"' in change["new"]:
            spoken.append(view.caption)

    view._page.observe(listen, "value")

    async def learner():
        press(view, "Start")
        await until(lambda: view.race.step >= 5)
        press(view, "Stop")
        press(view, "Start")
        await until(lambda: not view.running)

    asyncio.run(learner())
    states = ["same initial weights, started.", "stopped: step", "running: step", "finished: step 20 of 20"]
    assert len(spoken) == len(states)
    assert all(state in caption for state, caption in zip(states, spoken, strict=True))
    assert len(pages) > 2 * len(spoken)


@pytest.mark.parametrize("act", [RaceView.close, lambda view: setattr(view, "dtype", "bf16")])
def test_a_closed_view_stops_and_another_dtype_lines_up_a_new_race(view, act):
    async def learner():
        view.start()
        await until(lambda: view.race.step >= 3)
        old = view.race
        act(view)
        stopped = old.step
        await asyncio.sleep(0.05)
        assert (old.step, view.running) == (stopped, False)
        return old

    old = asyncio.run(learner())
    assert (view.race is old) == ("fp16 autocast" in view.caption) == (view.race.amp.precision == "fp16")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("task", ["digits"], "digits"),
        ("dtype", "fp8", "fp16 or bf16"),
        ("dtype", torch.float32, "fp16 or bf16"),
        ("dtype", None, "fp16 or bf16"),
    ],
)
def test_a_choice_that_is_none_is_answered_and_changes_nothing(view, name, value, answer):
    before = getattr(view, name)
    setattr(view, name, value)
    assert answer in view.caption
    assert getattr(view, name) == before
    view.run()
    assert "finished" in view.caption


def test_without_an_event_loop_it_says_what_to_do(view):
    with ThreadPoolExecutor(1) as pool:  # in a thread of its own: Playwright leaves a loop in the main thread
        pool.submit(view.start).result()
    assert "run()" in view.caption
    assert not view.running


def breaking_off(monkeypatch, error, at):
    """Let training raise ``error`` within a step."""
    steps = training.training_steps

    def broken(*args, **kwargs):
        for number, step in enumerate(steps(*args, **kwargs)):
            if number == at:
                raise error
            yield step

    monkeypatch.setattr(training, "training_steps", broken)


def test_an_error_of_pytorch_ends_the_race_in_words_and_another_can_start(monkeypatch):
    with monkeypatch.context() as patch:
        breaking_off(patch, torch.OutOfMemoryError("CUDA out of memory.\nmany details"), at=3)
        view = RaceView(device="cpu")

        async def learner():
            view.start()
            await until(lambda: not view.running)

        asyncio.run(learner())
        assert view.caption == "The race ended before its time: CUDA out of memory."
    view.start_again()  # no event loop here, but it lines up
    view.run()
    assert "finished" in view.caption


def test_an_interrupt_goes_through_and_leaves_a_race_that_can_be_run(monkeypatch):
    with monkeypatch.context() as patch:
        breaking_off(patch, KeyboardInterrupt(), at=3)
        view = RaceView(device="cpu")
        with pytest.raises(KeyboardInterrupt):
            view.run()
        assert (view.race.step, view.running) == (0, False)
    view.dtype = "bf16"
    view.run()
    assert view.race.amp.losses == RaceView(dtype="bf16", device="cpu").run().race.amp.losses


def test_the_difference_of_the_race_before_stays_in_sight_where_both_had_the_same_task(view):
    view.run()
    before = view.race.differences
    view.dtype = torch.bfloat16 if view.dtype == torch.float16 else torch.float16
    grey = [list(line.get_ydata()) for line in view.picture.figure.axes[1].lines]
    assert before in grey
    view.run().task = "character language model"
    assert view.caption.startswith("character language model, fp32 against ")
    assert [list(line.get_ydata()) for line in view.picture.figure.axes[1].lines] == [[]]
