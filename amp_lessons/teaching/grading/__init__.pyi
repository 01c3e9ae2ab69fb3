"""What graders import from ``amp_lessons.teaching.grading``; nothing loads before it is used."""

from .grades import Grade as Grade
from .grades import Graded as Graded
from .grades import Grades as Grades
from .grades import file_name as file_name
from .grades import page as page
from .grading import grade as grade
from .grading import grade_notebook as grade_notebook
from .judging import Terms as Terms
from .wall import Limits as Limits
