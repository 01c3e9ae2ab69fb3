"""What is kept on disk: the learner's progress, what was practised and when it is due, whole files, locks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["practice", "progress", "schedule"])
