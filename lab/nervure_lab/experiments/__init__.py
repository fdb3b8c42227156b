"""One module or package for each experiment, with its ``EXPERIMENT``."""

from __future__ import annotations

import importlib
from typing import Any

from nervure_lab.contract import Experiment

MODULES = ("local.experiment", "link.experiment", "calls", "cold", "observers", "recording")


def all_experiments() -> dict[str, Experiment[Any, Any]]:
    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    return {module.EXPERIMENT.name: module.EXPERIMENT for module in modules}
