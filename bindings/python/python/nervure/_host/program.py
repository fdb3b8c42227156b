"""Runs the program of a node: a script, or a function of a module."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from nervure import Node


def script(path: str, main: ModuleType) -> None:
    """Runs a script as Python does, with the globals of ``main``."""
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__file__ = path
    main.__loader__ = loader
    if (folder := str(Path(path).parent)) not in sys.path:
        sys.path.insert(0, folder)
    exec(loader.source_to_code(loader.get_data(path), path), main.__dict__)


def function(name: str) -> None:
    """Calls a function, ``module:function``, with the node. It returns an exit code as for ``sys.exit``.

    Raises:
        ImportError: there is no such module, or it has no such function.
        SystemExit: the function returned something.
    """
    module, _, attribute = name.partition(":")
    run = _find(fresh(module), module, attribute)
    returned = run(Node())
    if returned is not None:
        sys.exit(returned)


def fresh(name: str) -> ModuleType:
    """Runs the code of a module again, so that nodes of the same module do not share its globals."""
    # A package is imported once.
    parent, _, _ = name.rpartition(".")
    if parent:
        importlib.import_module(parent)
    importlib.invalidate_caches()
    spec = importlib.machinery.PathFinder.find_spec(name, getattr(sys.modules.get(parent), "__path__", None))
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = importlib.util.module_from_spec(spec)
    # `pickle` and `typing` look its names up there.
    sys.modules.setdefault(name, module)
    if spec.origin and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        # Not from the cache, which misses a second change within one second.
        code = spec.loader.source_to_code(spec.loader.get_data(spec.origin), spec.origin)
        exec(code, module.__dict__)
    else:
        spec.loader.exec_module(module)
    return module


def _find(module: ModuleType, name: str, attribute: str) -> Callable[[Node], Any]:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ImportError(f"the module {name!r} ({module.__file__}) has no function {attribute!r}")
    function: Callable[[Node], Any] = found
    return function
