"""The course's exercises in nbgrader and in otter, with ``amp_lessons.teaching.grading`` as the judge."""
