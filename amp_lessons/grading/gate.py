"""What an attempt may be made of, where the check has to run in one process with it.

Then the check could be reached from Python: through frames, globals, the garbage collector, an import. The
gate reads the source and lets through what none of that can be built of: modules from a list, used by their
names and not handed around; no name or attribute that begins with an underscore but one's own; none that
leads to frames, code, files or pickles. Whatever else stands there is held back: it is not run, and the
teacher is told what it was and where. No solution of the course needs any of it.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache

_MODULES = frozenset(
    [
        "__future__",
        "bisect",
        "cmath",
        "collections",
        "collections.abc",
        "contextlib",
        "copy",
        "dataclasses",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "math",
        "numbers",
        "random",
        "statistics",
        "struct",
        "time",
        "typing",
        "warnings",
        "numpy",
        "numpy.linalg",
        "numpy.random",
        "torch",
        "torch.amp",
        "torch.autograd",
        "torch.backends",
        "torch.backends.cuda",
        "torch.backends.cudnn",
        "torch.backends.mkldnn",
        "torch.cuda",
        "torch.cuda.amp",
        "torch.cpu",
        "torch.distributed",
        "torch.func",
        "torch.linalg",
        "torch.nn",
        "torch.nn.functional",
        "torch.nn.init",
        "torch.nn.modules",
        "torch.nn.parallel",
        "torch.nn.utils",
        "torch.optim",
        "torch.optim.lr_scheduler",
        "torch.optim.swa_utils",
        "torch.special",
        "torch.utils",
        "torch.utils.checkpoint",
        "torch.utils.data",
    ]
)
_ROOMS = frozenset(
    [
        "amp_lessons",
        "amp_lessons.autocast",
        "amp_lessons.data",
        "amp_lessons.devices",
        "amp_lessons.formats",
        "amp_lessons.models",
    ]
)
_PARTS = {"os": {"replace", "rename"}, "timeit": {"default_timer"}}  # of a module, nothing else
_NAMES = frozenset(
    [
        "breakpoint",
        "compile",
        "delattr",
        "eval",
        "exec",
        "exit",
        "get_ipython",
        "globals",
        "help",
        "input",
        "locals",
        "memoryview",
        "open",
        "quit",
        "setattr",
        "vars",
    ]
)
_ATTRIBUTES = frozenset(
    [
        "ag_code",
        "ag_frame",
        "co_code",
        "cr_code",
        "cr_frame",
        "f_back",
        "f_builtins",
        "f_code",
        "f_globals",
        "f_locals",
        "gi_code",
        "gi_frame",
        "tb_frame",
        "tb_next",
        "get_type_hints",
        "ForwardRef",
        "write_bytes",
        "write_text",
        "read_bytes",
        "read_text",
        "open",
        "unlink",
        "rmdir",
        "mkdir",
        "rename",
        "replace_with",
        "symlink_to",
        "chmod",
        "touch",
        "fromfile",
        "tofile",
        "memmap",
        "ctypeslib",
        "ctypes",
        "from_file",
        "frombuffer",
        "DLPack",
        "from_dlpack",
        "set_default_tensor_type",
        "register_module_forward_hook",
        "register_module_forward_pre_hook",
        "register_module_full_backward_hook",
        "register_module_backward_hook",
        "register_optimizer_step_pre_hook",
        "register_optimizer_step_post_hook",
    ]
)
_SPECIAL = frozenset(
    [
        "__init__",
        "__call__",
        "__enter__",
        "__exit__",
        "__iter__",
        "__next__",
        "__len__",
        "__getitem__",
        "__contains__",
        "__repr__",
        "__str__",
        "__post_init__",
        "__name__",
        "__doc__",
        "__all__",
    ]
)
_CARELESS = {"weights_only": (False, None), "pickle_module": (), "allow_pickle": (True,)}


def complaints(statements: Sequence[ast.stmt]) -> list[str]:
    """Return, each once, what the gate does not let through; nothing where all of it may run."""
    gate = _Gate()
    for statement in statements:
        gate.visit(statement)
    return list(dict.fromkeys(gate.found))


class _Gate(ast.NodeVisitor):
    """A visitor of a source that collects what is not let through."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._classes = 0  # that are around the node
        self._modules: dict[str, str] = {}  # by the name under which each is known

    def _note(self, node: ast.AST, what: str) -> None:
        source = ast.unparse(node).partition("\n")[0][:80]
        self.found.append(f"{what}: {source}")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._require_module(node, alias.name)
            self._modules[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or any(alias.name == "*" for alias in node.names):
            self._note(node, "an import that does not say what it brings")
            return
        self._require_module(node, module)
        for alias in node.names:
            whole = f"{module}.{alias.name}"
            if _is_module(whole) or module == "amp_lessons":
                self._require_module(node, whole)
                self._modules[alias.asname or alias.name] = whole
            elif problem := _problem_of_part(module, alias.name):
                self._note(node, problem)

    def _require_module(self, node: ast.AST, name: str) -> None:
        if name not in _MODULES | _ROOMS | set(_PARTS):
            self._note(node, f"the module {name}")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._modules:
            self._note(node, "a module that is handed around instead of being used by its name")
        elif node.id in _NAMES or (_is_special(node.id) and node.id not in _SPECIAL):
            self._note(node, "a name that reaches beyond the attempt")
        elif node.id in ("getattr", "type"):
            self._note(node, "a function that finds anything")

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        harmless = (function == "type" and len(node.args) == 1 and not node.keywords) or (
            function == "getattr" and self._gets_a_plain_name(node)
        )
        for keyword in node.keywords:
            self._look_at_keyword(node, keyword)
        for child in ast.iter_child_nodes(node):
            if not (harmless and child is node.func):
                self.visit(child)

    def _gets_a_plain_name(self, node: ast.Call) -> bool:
        if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant):
            return False
        name = node.args[1].value
        return isinstance(name, str) and not _forbidden(name) and not name.startswith("_")

    def _look_at_keyword(self, node: ast.Call, keyword: ast.keyword) -> None:
        if keyword.arg in _CARELESS:
            allowed = _CARELESS[keyword.arg]
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
            if not allowed or value is ... or value in allowed:
                self._note(node, "an unpickling of anything")
        elif keyword.arg is None and not isinstance(keyword.value, ast.Name | ast.Attribute | ast.Dict):
            self._note(node, "keywords that cannot be read off")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if path is not None:
            self._look_at_path(node, path)
            return
        own = self._classes > 0 and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if (problem := _forbidden(node.attr)) or (node.attr.startswith("_") and not _is_own(node, own)):
            self._note(node, problem or "what is not for others")
        if isinstance(node.ctx, ast.Store | ast.Del) and isinstance(node.value, ast.Call):
            self._note(node, "an assignment to what a call returns")
        self.visit(node.value)

    def _path(self, node: ast.expr) -> list[str] | None:
        """Return the path of an attribute of a module, from the module on; None for one of anything else."""
        if isinstance(node, ast.Name):
            return [self._modules[node.id]] if node.id in self._modules else None
        if isinstance(node, ast.Attribute):
            before = self._path(node.value)
            return [*before, node.attr] if before is not None else None
        return None

    def _look_at_path(self, node: ast.Attribute, path: list[str]) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del) and "backends" not in ".".join(path):
            self._note(node, "an assignment to a module or a class of a library")
        if problem := _problem_of_part(path[0], path[1]):
            self._note(node, problem)
            return
        whole = path[0]
        for place, part in enumerate(path[1:], start=1):
            whole = f"{whole}.{part}"
            if _is_module(whole):
                self._require_module(node, whole)
                if place == len(path) - 1:
                    self._note(node, "a module that is handed around instead of being used by its name")
            elif problem := _problem_of_part(path[0], part):
                self._note(node, problem)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if _is_special(node.name) and node.name not in _SPECIAL:
            self._note(
                node, "a special method with which an object can pretend to be equal, or to be another"
            )
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._note(node, "a coroutine")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if node.keywords:
            self._note(node, "a metaclass")
        plain = {"int", "float", "complex", "str", "bool", "dict", "list", "tuple", "Tensor", "Parameter"}
        for base in node.bases:
            last = (
                base.id
                if isinstance(base, ast.Name)
                else base.attr
                if isinstance(base, ast.Attribute)
                else "?"
            )
            if last in plain or last == "?":
                self._note(node, "a class that can pass for a number, a tensor or a container")
        self._classes += 1
        self.generic_visit(node)
        self._classes -= 1

    def visit_Constant(self, node: ast.Constant) -> None:
        if node.value in tuple(_CARELESS):
            self._note(node, "an unpickling of anything")

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for name in node.kwd_attrs:
            if _forbidden(name) or name.startswith("_"):
                self._note(node, "what is not for others")
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            if _is_special(name) or name in self._modules:
                self._note(node, "a name that reaches beyond the attempt")


def _problem_of_part(module: str, name: str) -> str:
    """Describe what is wrong with a name that a module gives; "" where it is let through."""
    if module in _PARTS:
        return "" if name in _PARTS[module] else f"more of {module} than an answer needs"
    if name.startswith("_") and not (module == "torch" and name.startswith("_foreach_")):
        return "what is not for others"
    if name in sys.stdlib_module_names - {"random", "array"} and name != module:
        return "a module that another has imported"
    return _forbidden(name)


def _forbidden(name: str) -> str:
    if name in _ATTRIBUTES:
        return "what leads to files, frames or hooks of everything"
    if _is_special(name) and name not in _SPECIAL:
        return "a special attribute"
    return ""


def _is_own(node: ast.Attribute, of_self: bool) -> bool:
    """One's own private attributes, ``super().__init__``, and ``type(x).__name__``."""
    return node.attr in _SPECIAL or (of_self and not _is_special(node.attr))


def _is_special(name: str) -> bool:
    return name.startswith("__")


@cache
def _is_module(name: str) -> bool:
    """Whether a dotted name is a module's, as far as files say: nothing is imported but packages' parents."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return True
    return last in _submodules(parent)


@cache
def _submodules(package: str) -> frozenset[str]:
    top, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return frozenset()
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    folders = ["/".join([folder, *rest]) for folder in spec.submodule_search_locations]
    return frozenset(module.name for module in pkgutil.iter_modules(folders))
