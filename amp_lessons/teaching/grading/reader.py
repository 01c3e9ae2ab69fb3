"""The process that reads one notebook: a file that was made to break a parser breaks nothing else."""

from __future__ import annotations

import sys
from dataclasses import asdict

from amp_lessons.teaching.grading import frames
from amp_lessons.teaching.grading.reading import UnreadableNotebookError, attempts_in, lessons_in


def main() -> None:
    """Answer one request: a notebook's text, and the exercises that are looked for."""
    incoming, outgoing = map(int, sys.argv[1:3])
    request = frames.read(incoming)
    try:
        lessons = sorted(lessons_in(request["text"], request["wanted"]))
        wanted = [each for each in request["wanted"] if each["lesson"] in lessons]
        found = [asdict(each) for each in attempts_in(request["text"], wanted)]
    except UnreadableNotebookError as error:
        frames.write(outgoing, {"problem": str(error)})
        return
    frames.write(outgoing, {"lessons": lessons, "found": found})


if __name__ == "__main__":
    main()
