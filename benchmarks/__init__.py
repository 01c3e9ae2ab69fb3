"""What the course promises about its speed, measured. ``python -m benchmarks`` runs every file here.

Each file has a ``main()`` that measures, prints, and raises AssertionError where a promise is not kept.
"""
