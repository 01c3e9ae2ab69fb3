"""``make classroom-load`` calls ``python -m classroom.load``."""

import sys

from classroom.load.command import main

if __name__ == "__main__":
    sys.exit(main())
