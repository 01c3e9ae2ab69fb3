"""Grade notebooks that learners hand in, against learners who would rather have the points than the answer.

``grade`` reads a folder of submissions and returns grades; ``amp-lessons grade`` writes them. A submission
gets points for what it solves, and whatever it does, everybody else gets theirs.

**What a submission may try, and what becomes of it.** Its notebook is never run. It is read, as data, by a
process of its own (``reader``), in which nothing of it runs; what an attempt needs is cut out of it
(``reading``), so a cell that assigns to ``exercises.check`` or to PyTorch is left where it is, and stored
outputs count for nothing. What is cut out runs behind a wall (``wall``, ``processes``): a fresh process for
each attempt, under a user of its own, in namespaces of its own. There it can kill no parent and no sibling,
for it sees none; what it leaves in the background ends with its first process; it writes to an empty ``/tmp``
that is gone afterwards, and to no result and no other submission, for there are none; it reaches no network.
Memory, processes, files and time are limited, all of its processes together; what it prints goes nowhere.
``os._exit``, an endless loop and a flood of output end its own attempt with 0.

**Who judges.** The check of the exercise (``exercises.bed``), from here: the attempt is in a worker behind
the wall, and is called over a socket. What comes back is numbers, texts and tensors, never pickles, and there
is nothing to forge, for whatever comes is the answer that the judge then finds right or wrong. The course's
solutions and checks are not to be seen from there.

**What this does not stop.**

- What the points say is that the submission computed these numbers: not who wrote it, nor that nobody
  helped. Code that is the card's solution is pointed out, without taking points: a short one comes out alike
  by itself. Nor does every check notice that PyTorch's own class was handed in as one's own.
- Of some exercises it is written down in the worker what was called in which order. Whoever rewrites that
  from within has read the course's source for it, and the numbers still have to be right.
- A hole in the kernel's own walls. Where namespaces are not allowed, only limits hold; the teacher is told
  so, and has to say ``--unprotected``. Such a machine should hold nothing that is not to be read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
