"""Import no more of torchmetrics than a run uses.

Lightning imports all of torchmetrics, and torchmetrics imports torchvision, transformers and SciPy where they are installed. It
does so because two of its ``__init__.py`` gather names from the whole package. Here a name that they gather is imported when it
is first used (PEP 562). Nothing is replaced or left out, only the moment of the imports changes.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

PACKAGES = ("torchmetrics", "torchmetrics.functional")
HEAVY = ("scipy",)
"""What their ``__init__.py`` import for a patch that torchmetrics' audio metrics repeat for themselves."""

FIRST = "torchmetrics.utilities"
"""What their ``__init__.py`` come to import before all else; some submodules import each other and need this order."""


def import_torchmetrics_lazily() -> None:
    """Make the first import of torchmetrics a lazy one; call it before Lightning is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in PACKAGES else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _LazyNames(name, spec.loader.path)
        return spec


class _LazyNames(SourceFileLoader):
    """Run an ``__init__.py`` without its imports from torchmetrics, without ``HEAVY`` ones, and without what needs either."""

    def exec_module(self, module: ModuleType) -> None:
        package, namespace = module.__name__, vars(module)
        gathered: dict[str, tuple[str, str]] = {}
        parts: dict[bool, list[ast.stmt]] = {True: [], False: []}
        waiting: set[str] = set()
        for statement in ast.parse(self.get_data(self.path)).body:
            names = _gathered(statement)
            waits = bool(names) or any(_needs(node, waiting) for node in ast.walk(statement))
            if waits:
                waiting |= {bound for node in ast.walk(statement) for bound in _bound(node)}
            gathered |= names
            parts[waits].append(statement)

        def run(statements: list[ast.stmt]) -> None:
            exec(compile(ast.Module(statements, []), self.path, "exec"), namespace)

        def lookup(name: str) -> Any:
            source, attribute = gathered.get(name, (package, name))
            if source != package:
                namespace[name] = getattr(importlib.import_module(source), attribute)
            elif not name.startswith("__"):
                if importlib.util.find_spec(f"{package}.{attribute}"):
                    return importlib.import_module(f"{package}.{attribute}")
                run(parts.pop(True, []))  # what the file does beside gathering may bind the name
            if name not in namespace:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            return namespace[name]

        module.__getattr__ = lookup  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted({*namespace, *gathered})  # type: ignore[method-assign]
        run(parts[False])
        importlib.import_module(FIRST)


def _gathered(statement: ast.stmt) -> dict[str, tuple[str, str]]:
    """Return the names that a statement imports from torchmetrics: each with its module and its name there."""
    if not isinstance(statement, ast.ImportFrom) or statement.level or statement.names[0].name == "*":
        return {}
    module = statement.module or ""
    inside = module.split(".")[0] == PACKAGES[0]
    return {alias.asname or alias.name: (module, alias.name) for alias in statement.names} if inside else {}


def _needs(node: ast.AST, names: set[str]) -> bool:
    """Say whether a node reads one of the names, or imports what is heavy."""
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in HEAVY for alias in node.names)
    return isinstance(node, ast.Name) and node.id in names


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a node binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
