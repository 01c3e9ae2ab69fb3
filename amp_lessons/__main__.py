"""Let ``python -m amp_lessons`` do what the ``amp-lessons`` command does."""

import sys

from amp_lessons.cli.cli import main

sys.exit(main())
