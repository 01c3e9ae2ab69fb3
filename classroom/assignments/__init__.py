"""The course's exercises in nbgrader and in otter, with ``amp_lessons.grading`` as the judge."""
