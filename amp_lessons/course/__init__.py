"""The course: lessons, exercises, the interview room, views, and the pages of the site."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    [
        "bench",
        "classroom",
        "clinic",
        "exercises",
        "interview",
        "lessons",
        "progress",
        "quizzes",
        "routes",
        "schedule",
        "training",
        "views",
    ],
)
