"""Grade notebooks that learners hand in, against learners who would rather have the points than the answer.

``grade`` reads a folder of submissions and returns grades; ``amp-lessons grade`` writes them. No notebook
is run: it is read as data (``reading``), and what an attempt needs is cut out of it. That runs behind a wall
of the system (``wall``), anew for each attempt. The exercise's own judge (``judging``) asks it from outside:
what comes back is numbers, texts and tensors, never a verdict, so there is nothing to forge, and whatever a
submission does, everybody else gets their points.

**What the points say**: the submission computed these numbers. **What they do not say:**

- Who wrote it, or that nobody helped. Code that is the card's solution is pointed out, without taking points:
  a short one comes out alike by itself. Nor does every check notice that PyTorch's own class was handed in.
- Of some exercises it is written down in the worker what was called in which order. Whoever rewrites that
  from within has read the course's source for it, and the numbers still have to be right.
- That a wall has no hole. Without one (``--unprotected``) a submission can read the solutions, and whatever
  else this account may read and write, and has the network.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
