"""Mixed precision training with PyTorch, taught by measuring it.

Import the rooms you need: ``from amp_lessons import formats, scaling, views``. Importing the package itself
loads nothing, so it costs nothing; matplotlib and ipywidgets load when the first view is made.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
