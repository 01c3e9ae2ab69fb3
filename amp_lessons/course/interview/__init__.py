"""The interview room: questions with model answers, and a proof of each answer that anybody can run.

- ``bank``: the questions and the rounds of system design, data in ``bank/*.yaml``, and finding one.
- ``proofs``: one module per topic, one function per question; its body is the cell that shows the answer is
  true, its variables are the numbers in the answer, and what they came to is kept on disk.
- ``estimates``: questions whose numbers are drawn by a seed, to be answered on paper.
- ``deck``: the questions as flash cards that come back; ``drilling``: fifty seconds each, drawn by a seed.
- ``mock``: interviews against a clock; ``planning`` draws their questions, and what follows from an answer;
  ``reporting`` says how they went.
- ``code_rounds``: code under a clock; ``code_tasks``: what they ask for, and drawing it.
- ``plan``: what to do each day until an interview.
- ``whiteboard``: one page to know by heart; ``exporting``: the bank for Anki, and as CSV.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
