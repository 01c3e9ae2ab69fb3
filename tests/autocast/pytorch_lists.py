"""PyTorch's own lists of what autocast must do, and the checker that its own tests run them through."""

from __future__ import annotations

import sys
import unittest
from types import ModuleType
from unittest import mock

import torch


def _own_lists():
    """Import the lists; their neighbours import ``expecttest``, a test tool that few people have."""
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:
        stand_in = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    # PyTorch's test tools forbid the whole process to set backend flags; other tests here set some.
    with mock.patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal import autocast_test_lists

    return autocast_test_lists


lists = _own_lists()
checker = lists.TestAutocast()


def cases(device_lists, name):
    """Operation, arguments and keyword arguments of one list, without those that PyTorch's tests skip."""
    found = []
    for operation, arguments, *rest in getattr(device_lists, name):
        extra = rest[0] if rest else {}
        if isinstance(extra, dict):
            found.append((operation, arguments, extra))
    return found
