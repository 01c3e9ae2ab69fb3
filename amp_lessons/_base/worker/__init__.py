"""One way to run somebody's function: in a process of its own, called from here with plain data.

- ``plain``: values that travel, and nothing else does.
- ``host``: a clean process that has imported PyTorch once and forks the others.
- ``client``: a worker as whoever judges it sees it: calls, limits, endings.
- ``serving``: what runs in the host and in the worker.
"""
