"""The process that runs the script: ``python -m amp_lessons.commands.audit.child OPTIONS [ARGUMENT…]``."""

from amp_lessons.commands.audit.running import main

if __name__ == "__main__":
    main()
