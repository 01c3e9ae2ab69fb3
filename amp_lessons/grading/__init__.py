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

**Who judges.** Exercises on the bench (``exercises.bed``) are judged from here: the attempt is in a worker
behind the wall, and is called over a socket. What comes back is numbers, texts and tensors, never pickles,
and there is nothing to forge, for whatever comes is the answer that the judge then finds right or wrong. The
course's solutions are not to be seen from there. That wall is a whole one.

All other checks watch *how* an attempt uses PyTorch: they hand out models and loaders, and write down what is
called in which order. They have to be in one process with the attempt, and no wall in one process of Python
stands against code that may use all of Python. So there a second one stands in front (``gate``): the source
is read, and run only if all it consists of is on a list, on which there are no imports but of libraries that
are used by name, no underscores, frames, globals, files, pickles, and no classes that can pass for numbers.
What is held back gets 0, with the line that was the reason, until the teacher has looked at it and accepted
the learner (``--accept``). So a right answer that is written in an unusual way waits; it is not lost.

**What this does not stop.**

- An attempt that the teacher accepts may do to its own check whatever it likes.
- The gate is a list, and the libraries that it lets through are large. Code of theirs that runs a text, or
  hands out a module, without a name that is forbidden would get through, and could then forge its own report.
  So could one that knows the public attributes of the objects a check hands out, and changes them. Either
  gets the points of that one exercise; the outer wall still stands.
- A hole in the kernel's own walls. Where namespaces are not allowed, only limits hold; the output says so,
  the gate then stands before every attempt, and such a machine should hold nothing that is not to be read.
- An answer that somebody else has written. Solutions that are the card's are pointed out, without taking
  points: a short one comes out alike by itself.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
