"""Kernels forked from one process that has imported PyTorch and the course: less memory, and a quick start.

A *parent* imports once what all lessons import, and runs nothing of anybody's. Each kernel is a fork of it,
so what was imported is in memory once, whoever uses it. ``provisioner`` has Jupyter ask for such kernels,
``request`` is what it asks with, ``parent`` forks, ``account`` makes the fork the asker's own, ``birth``
makes it a kernel, and ``process`` is what Jupyter holds of it. Wherever any of this cannot be done, the
kernel starts as it always did, and the server's log says why.

There are two kinds of parent. Jupyter's server starts one **of its own** on Linux, where
``JUPYTER_DEFAULT_PROVISIONER_NAME=amp-lessons-forked`` is set: it serves that server alone, and ends with it.
Root may start one **for everybody** on a machine, ``python -m amp_lessons.kernels --listen PATH``; servers
for which ``AMP_LESSONS_KERNELS=PATH`` is set ask that one.

What root's parent promises, and how:

* It reads nothing that an asker sends. The kernel of the machine says who asks (``SO_PEERCRED``); the fork
  becomes that account, without a way back, before it reads the first byte of the request. So all that a
  request can name is what its sender may do anyway.
* A fork gets what its asker has, and not what the parent has: account and groups, limits, control groups,
  niceness, processors, capabilities it could ever gain, ``no_new_privs``. An asker in namespaces of its own,
  under a filter of system calls or in a changed root gets no fork: there it could not be made its equal.
* The parent runs with a bare environment and in ``/``; it holds no secrets, and no fork inherits a socket of
  another. Forks draw random numbers of their own (Python's, NumPy's, PyTorch's, ``multiprocessing``'s key).
* One account gets a bounded number of kernels, and only accounts of one group are answered, if one is named.

What it does not do: forks share the layout of their memory, and the seed of Python's hashes, as apps on
Android do. Whoever has found a hole in the memory of another learner's process is not slowed by chance.
Start it from a service manager, which gives it a session keyring of its own: forks keep the parent's.
"""
