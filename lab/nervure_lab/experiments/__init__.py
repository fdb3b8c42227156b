"""One file an experiment; each has ``EXPERIMENT``."""

from __future__ import annotations

import importlib
import pkgutil

from nervure_lab.plan import Experiment


def all_experiments() -> dict[str, Experiment]:
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return {module.EXPERIMENT.name: module.EXPERIMENT for module in modules}
