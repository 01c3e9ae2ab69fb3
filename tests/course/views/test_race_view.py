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


def test_it_waits_for_the_learner(view):
    assert view.race.step == 0
    assert view.caption == (
        "digits, fp32 against fp16 autocast on cpu: 20 steps from the same initial weights, ready to start."
    )


def test_run_trains_to_the_end_and_says_what_came_out(view):
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


def test_the_curves_end_where_the_race_has_come(view):
    view.run()
    fp32, amp, _ = view.picture._curves
    assert list(fp32.get_ydata()) == view.race.fp32.losses
    assert list(amp.get_ydata()) == view.race.amp.losses
    assert list(view.picture._difference.get_ydata()) == view.race.differences


def test_it_runs_in_the_background_while_other_code_runs(view):
    async def learner():
        press(view, "Start")
        assert view.running
        assert view.race.step == 0  # starting comes back at once
        seen = set()
        while view.running:
            seen.add(view.race.step)
            await asyncio.sleep(0.001)
        return seen

    seen = asyncio.run(learner())
    assert view.race.finished
    assert "finished" in view.caption
    assert len(seen) > 5


def test_a_short_race_is_drawn_at_every_step(view, monkeypatch):
    monkeypatch.setattr(widgets.race, "SLICE_S", 60.0)
    drawn, show = [], view.show

    def seen(*args, **kwargs):
        drawn.append(view.race.step)
        show(*args, **kwargs)

    async def learner():
        view.start()
        await until(lambda: not view.running)

    monkeypatch.setattr(view, "show", seen)
    asyncio.run(learner())
    assert drawn == list(range(21))


def test_stop_and_go_on(view):
    async def learner():
        press(view, "Start")
        await until(lambda: view.race.step >= 3)
        press(view, "Stop")
        stopped, caption = view.race.step, view.caption
        await asyncio.sleep(0.1)
        assert view.race.step == stopped
        assert f"stopped: step {stopped} of 20" in caption
        press(view, "Start")
        await until(lambda: not view.running)

    asyncio.run(learner())
    uninterrupted = RaceView(device="cpu").run().race
    assert view.race.amp.losses == uninterrupted.amp.losses
    assert view.race.fp32.losses == uninterrupted.fp32.losses


def test_who_presses_too_often_changes_nothing(view):
    async def learner():
        for label in ("Stop", "Start", "Stop"):
            press(view, label)
        await asyncio.sleep(0.05)
        assert (view.race.step, view.running) == (0, False)
        press(view, "Start")
        first = view._running
        press(view, "Start")
        assert view._running is first
        await until(lambda: not view.running)

    asyncio.run(learner())
    assert view.race.step == 20


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


def test_start_again_goes_back_to_the_initial_weights(view):
    view.run()
    losses = view.race.amp.losses

    async def learner():
        press(view, "Start again")
        assert view.race.step == 0
        await until(lambda: not view.running)

    asyncio.run(learner())
    assert view.race.amp.losses == losses


def test_two_views_do_not_disturb_each_other(view):
    other = RaceView(dtype="bf16", device="cpu")

    async def learner():
        view.start()
        other.start()
        await until(lambda: view.race.step >= 3 and other.race.step >= 3)
        other.stop()
        await until(lambda: not view.running)

    asyncio.run(learner())
    assert view.race.amp.losses == RaceView(device="cpu").run().race.amp.losses
    assert other.race.step < 20


def test_another_dtype_lines_up_a_new_race_and_stops_the_old_one(view):
    async def learner():
        view.start()
        await until(lambda: view.race.step >= 3)
        old = view.race
        view.dtype = "bf16"
        stopped = old.step
        await asyncio.sleep(0.05)
        assert (old.step, view.race.step, view.running) == (stopped, 0, False)

    asyncio.run(learner())
    assert "bf16 autocast" in view.caption
    assert view.race.amp.precision == "bf16"


def test_the_task_can_be_chosen(view):
    view.task = "character language model"
    assert view.caption.startswith("character language model, fp32 against fp16")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("task", "chess", "digits"),
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


def test_a_closed_view_stops(view):
    async def learner():
        view.start()
        await until(lambda: view.race.step >= 1)
        view.close()
        stopped = view.race.step
        await asyncio.sleep(0.05)
        assert view.race.step == stopped

    asyncio.run(learner())


def test_the_difference_of_the_race_before_stays_in_sight_where_both_had_the_same_task(view):
    view.run()
    before = view.race.differences
    view.dtype = torch.bfloat16 if view.dtype == torch.float16 else torch.float16
    grey = [list(line.get_ydata()) for line in view.picture.figure.axes[1].lines]
    assert before in grey
    view.run().task = "character language model"
    assert [list(line.get_ydata()) for line in view.picture.figure.axes[1].lines] == [[]]
