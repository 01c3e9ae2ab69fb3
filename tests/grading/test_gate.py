"""The gate: no solution of the course is held back, and no way to the check that we thought of gets by."""

from __future__ import annotations

import ast

import pytest

from amp_lessons import exercises
from amp_lessons.grading import gate, reading


def held(source: str) -> list[str]:
    return gate.complaints(ast.parse(source).body)


IN_FRONT_OF = [each for each in exercises.catalog() if not each.is_on_bench]


@pytest.mark.parametrize("exercise", IN_FRONT_OF, ids=lambda each: each.id)
def test_no_solution_is_held_back(exercise):
    body = ast.parse(exercise.solution_source).body
    assert not gate.complaints(reading.needed(exercise.names, body))


def test_few_other_ways_are_held_back():
    ways = {(each.id, way.title): held(way.source) for each in IN_FRONT_OF for way in each.other_ways}
    assert [of for (of, _), complaints in ways.items() if complaints] == ["time_step"]  # timeit runs texts


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.listdir(path)",
        "import os\nmine = os",
        "import sys, math",
        "from amp_lessons import exercises",
        "from amp_lessons.exercises.loss_scaler.solution import LossScaler",
        "import amp_lessons.exercises as e",
        "from torch import *",
        "from . import x",
        "import torch._C",
        "import torch.utils.cpp_extension",
        "__import__('os')",
        "eval('1')",
        "exec('1')",
        "run = eval",
        "open('x')",
        "globals()['check'] = 1",
        "setattr(f, 'x', 1)",
        "getattr(f, 'glo' + 'bals')",
        "getattr(f, '__globals__')",
        "find = getattr",
        "type('X', (), {})",
        "make = type",
        "f.__globals__",
        "f.__class__.__subclasses__()",
        "().__class__.__base__",
        "def f():\n    try: x\n    except Exception as error: return error.__traceback__.tb_frame",
        "error.tb_frame.f_back",
        "generator.gi_frame",
        "import torch\ntorch.serialization.os._exit(0)",
        "import torch\nt = torch\nt.serialization",
        "import torch\nt = torch.nn\nt.functional",
        "import torch\ntorch.os",
        "import torch\ntorch._C",
        "import torch\ntorch.nn.Linear.forward = None",
        "import torch\ntorch.optim.SGD.step = lambda self: None",
        "import torch.nn.functional as F\nF.linear = None",
        "import torch\ndel torch.tensor",
        "import torch\ntorch.load(path, weights_only=False)",
        "import torch\ntorch.load(path, **{'weights_only': False})",
        "import torch\ntorch.load(path, **dict(weights_only=False))",
        "import torch\ntorch.load(path, pickle_module=mine)",
        "import torch\ntorch.hub.load('x', 'y')",
        "import torch\ntorch.utils.data.dataloader.multiprocessing",
        "import torch\ntorch.jit.script",
        "import torch\ntorch.library.define",
        "import collections\ncollections._sys.exit",
        "import contextlib\ncontextlib.os",
        "import dataclasses\ndataclasses.inspect.currentframe()",
        "import typing\ntyping.get_type_hints(x)",
        "import random\nrandom._os",
        "from random import _os",
        "from dataclasses import inspect",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "import numpy as np\nnp.ctypeslib",
        "path.write_bytes(b'')",
        "model._tape.clear()",
        "def forward(self, x):\n    self._tape = []",
        "def forward(self, x):\n    return self.__dict__",
        "class Right(float):\n    pass",
        "class Right(int, metaclass=M):\n    pass",
        "class Equal:\n    def __eq__(self, other): return True",
        "class Equal:\n    __eq__ = None",
        "class T:\n    @classmethod\n    def __torch_function__(cls, *args): pass",
        "class R:\n    def __reduce__(self): pass",
        "match f:\n    case object(__globals__=g): pass",
        "def f():\n    global __builtins__",
        "async def f(): pass",
        "import timeit\ntimeit.timeit('x')",
        "import os\nos.system('x')",
        "from os import system",
        "type(model).forward = None",
        "super().__getattribute__('x')",
    ],
)
def test_a_way_to_the_check_is_held_back(source):
    assert held(source), source


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nimport torch.nn.functional as F\ny = F.relu(torch.zeros(3)).sum()",
        "from torch.optim import lr_scheduler\ns = lr_scheduler.StepLR(o, 1)",
        "import numpy as np\nx = np.array([1.0]).mean()",
        "import time\nbegan = time.time()",
        "class Scaler:\n    def __init__(self):\n        self._scale = 1.0\n        super().__init__()",
        "getattr(model, 'training', False)",
        "type(x) is int",
        "for group in optimizer.param_groups: group['lr'] = 0.1",
        "p.grad = None\np.data.copy_(q)",
        "import torch\ntorch.load(path, weights_only=True)",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "import torch\n@torch.no_grad()\ndef f(): pass",
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(c, x): c.k = 1",
    ],
)
def test_what_learners_write_gets_by(source):
    assert not held(source)
