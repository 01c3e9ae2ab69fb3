"""Run by every kernel as it starts, from IPython's profile: say in words what the limit of memory did."""


def _install() -> None:
    import os
    import sys
    from typing import Any

    mib = int(os.environ.get("MEM_LIMIT", 0)) // 2**20  # set by JupyterHub

    def explain_memory(result: Any) -> None:
        error = result.error_in_exec
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            print(
                f"A kernel may use {mib} MiB on this machine. Yours still runs: make it less.",
                file=sys.stderr,
            )

    if mib:
        get_ipython().events.register("post_run_cell", explain_memory)  # noqa: F821 - a name of IPython's


_install()
del _install
