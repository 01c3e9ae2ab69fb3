"""What is kept on disk: the learner's progress, answers to questions, what is due when, whole files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, ["answers", "cores", "practice", "progress", "schedule"]
)
