"""Subcommands of ``amp-lessons``, one module each: ``add_arguments(parser)`` and ``run(args) -> int``."""
