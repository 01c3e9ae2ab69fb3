"""What is kept on disk: the learner's progress, whole files, locks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["progress"])
