"""Kernels that are forked, in a test: the provisioner registered, one parent for all tests of a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory

from amp_lessons.kernels.own_parent import OwnParent

NAME = "amp-lessons-forked"
CLASS = "amp_lessons.kernels.provisioner:ForkedKernelProvisioner"
TIMEOUT_S = 60


class Kernel:
    """A kernel and a client of it; ``ask`` evaluates an expression there."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._run = run
        self.manager = AsyncKernelManager()

    def start(self, **options: Any) -> Kernel:
        self._run(self.manager.start_kernel(**options))
        self.client = self.manager.client()
        self.client.start_channels()
        return self.ready()

    def ready(self) -> Kernel:
        self._run(self.client.wait_for_ready(timeout=TIMEOUT_S))
        return self

    @property
    def process(self) -> Any:
        return self.manager.provisioner.process

    def execute(self, code: str, **options: Any) -> dict[str, Any]:
        return self._run(self.client.execute_interactive(code, timeout=TIMEOUT_S, **options))["content"]

    def ask(self, expression: str) -> Any:
        expressions = {"json": f"__import__('json').dumps({expression})"}
        reply = self.execute("", user_expressions=expressions, output_hook=lambda message: None)
        answer = reply["user_expressions"]["json"]
        assert answer["status"] == "ok", answer
        return json.loads(eval(answer["data"]["text/plain"]))

    def do(self, name: str, *args: Any, **options: Any) -> Any:
        return self._run(getattr(self.manager, name)(*args, **options))

    def end(self) -> None:
        if hasattr(self, "client"):
            self.client.stop_channels()
        self._run(self.manager.shutdown_kernel(now=True))


@pytest.fixture(scope="module", autouse=True)
def forked_by_default() -> Iterator[None]:
    """Have Jupyter ask for forked kernels, here, as an entry point and a variable do elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("AMP_LESSONS_KERNELS", raising=False)
        patch.setattr(OwnParent, "_instance", None)
        factory = KernelProvisionerFactory.instance()
        entry = EntryPoint(NAME, CLASS, KernelProvisionerFactory.GROUP_NAME)
        patch.setitem(factory.provisioners, NAME, entry)
        patch.setattr(factory, "default_provisioner_name", NAME)
        yield
        OwnParent.instance().end()


@pytest.fixture(scope="module")
def make_kernel(no_loop_runs: None) -> Iterator[Callable[..., Kernel]]:
    """Start kernels, and end them when the module's tests are over."""
    made: list[Kernel] = []
    with asyncio.Runner() if hasattr(asyncio, "Runner") else _Runner() as runner:

        def make(**options: Any) -> Kernel:
            made.append(Kernel(runner.run))
            return made[-1].start(**options)

        yield make
        for kernel in made:
            kernel.end()


@pytest.fixture
def new_kernel(make_kernel: Callable[..., Kernel]) -> Iterator[Callable[..., Kernel]]:
    """Start kernels that end with the test."""
    made: list[Kernel] = []

    def make(**options: Any) -> Kernel:
        made.append(make_kernel(**options))
        return made[-1]

    yield make
    for kernel in made:
        kernel.end()


class _Runner:
    """What ``asyncio.Runner`` is from Python 3.11 on."""

    def __enter__(self) -> _Runner:
        self._loop = asyncio.new_event_loop()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coroutine)
