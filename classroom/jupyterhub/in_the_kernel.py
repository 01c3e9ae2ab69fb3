"""Run by every kernel as it starts, from IPython's profile: say in words what the limits here have done.

A kernel that the machine has ended leaves nothing but "the kernel appears to have died". The hub leaves a
note of the reason, and the kernel that takes its place reads it out with the first cell that runs.
"""


def _install() -> None:
    import os
    import sys
    import time
    from typing import Any

    shell = get_ipython()  # noqa: F821 - a name that IPython gives to what it runs
    mib = int(os.environ.get("MEM_LIMIT", 0)) // 2**20  # set by JupyterHub

    def read_out(*_: object) -> None:
        shell.events.unregister("pre_run_cell", read_out)
        print(f"The kernel of this notebook was ended. {reason} Run the cells above again.", file=sys.stderr)

    def explain_memory(result: Any) -> None:
        error = result.error_in_exec
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            print(
                f"A kernel may use {mib} MiB on this machine. Yours still runs: make it less.",
                file=sys.stderr,
            )

    note, reason = os.environ.get("AMP_CLASSROOM_NOTE", ""), ""
    if note and os.path.exists(note) and time.time() - os.path.getmtime(note) < 120:
        with open(note, encoding="utf-8") as file:
            reason = file.read().strip()
    if reason:
        shell.events.register("pre_run_cell", read_out)
    if mib:
        shell.events.register("post_run_cell", explain_memory)


_install()
del _install
