"""The routes: what brings people here, and which parts of the course are for them, in order.

A section is named by the id of its heading's cell: headings are worded anew more often than ids change.
"""

from __future__ import annotations

from amp_lessons.course.routes.stops import Command, Core, InLesson, Route

# What somebody can do after a lesson, for the tables of lessons.
ABLE_TO = {
    "00": "say what mixed precision saves on your machine, and what it costs",
    "01": "decode an fp16 by hand, and say what 65,520, 2⁻²⁵ or 256 + 1 become in each format",
    "02": "find out which dtype PyTorch picks for any operation, for CUDA too, without a GPU",
    "03": "explain every line around `GradScaler`, and notice a skipped step",
    "04": "write the training loop, with clipping and accumulation, test it, and stop and resume it",
    "05": "predict what mixed precision saves for a model, and measure it reliably",
    "06": "find the cause behind a symptom, mend training code that runs but is wrong, and audit your own",
    "07": "fine-tune real pretrained weights, and put every instrument on a model of your own",
    "08": "say what is added up over GPUs in which dtype, and who keeps the fp32 weights",
    "09": "train in FP8 and FP4 on any machine, and judge what that saves before you adopt it",
    "10": "answer an interviewer aloud, prove the answer with a cell, and know it in two months",
    "11": "say which part of a language model needs which precision, and why two engines disagree",
}

FOR_SOME = (
    "11",
)  # lessons for those whose subject they are; the others are what everybody should leave with

# where nobody has chosen a route, and behind the end of one
IN_ORDER = Route("", "The lessons in order", "to go through them all", tuple(map(Core, ABLE_TO)))

ROUTES = (
    Route(
        "hour",
        "I have one hour",
        "to see once what mixed precision is, and why it needs a scaler",
        (
            Core("00"),
            InLesson("01", "predict"),
            *(InLesson("03", section) for section in ("floor", "where", "live", "fails")),
        ),
    ),
    Route(
        "evening",
        "I have an evening",
        "to use mixed precision rightly in a training loop of my own",
        (Core("00"), Core("03"), Core("04")),
    ),
    Route(
        "weekend",
        "I have a weekend",
        "to learn what everybody should know about it: the cores of lessons 00 to 10",
        tuple(Core(number) for number in ABLE_TO if number not in FOR_SOME),
    ),
    Route(
        "language",
        "I train or serve language models",
        "which precision decoding, inference engines and 4-bit weights need",
        (
            Core("03"),
            Core("09"),
            Core("11"),
        ),
    ),
    Route(
        "nan",
        "My loss is NaN now",
        "or training is slow, or learns less than in fp32: from the symptom to its cause",
        (
            InLesson("06", "tree"),
            Command("amp-lessons audit train.py", "which names the line that is wrong"),
            Command("amp-lessons explain TEXT", "for an error or a warning of PyTorch's"),
        ),
    ),
    Route(
        "advise",
        "Should I use it for my model?",
        "what it would save there, and what it would cost",
        (
            Command("amp-lessons advise my_module:make_model", "which tries it on your model"),
            Core("05"),
        ),
    ),
    Route(
        "interview",
        "I have an interview on Friday",
        "what to say, how to show that it is true, and questions to practise on",
        (
            *(
                InLesson(number, "interview")
                for number in ("01", "08", "09", "11", "02", "03", "04", "05", "06")
            ),
            Core("10"),
            InLesson("10", "drills"),
            InLesson("10", "coding"),
            InLesson("10", "mock"),
        ),
    ),
    Route(
        "teach",
        "I teach",
        "what a class needs beside the lessons",
        (
            Core("00"),
            Core("03"),
            Command("classroom/guide.md", "the teacher's guide, in the folder of the course: plans, slides"),
        ),
    ),
)


def route(id: str) -> Route:
    """Return a route by its id, ``"evening"``. Raises ValueError that names those there are."""
    found = {each.id: each for each in ROUTES}
    if id not in found:
        raise ValueError(f"there is no route {id!r}; choose one of {', '.join(found)}")
    return found[id]
