"""One module or package for each experiment, with its ``EXPERIMENT``; the declared ones are in
``comparison``.
"""

from __future__ import annotations

import importlib
from typing import Any

from nervure_lab.contract import Experiment

MODULES = (
    "local.experiment",
    "link.experiment",
    "fleet.experiment",
    "calls",
    "cold",
    "cyclic",
    "observers",
    "recording",
    "sobel.experiment",
)


def all_experiments() -> dict[str, Experiment[Any, Any]]:
    # Endpoints import this package, and have the standard library alone.
    from nervure_lab.comparison.experiment import declared_experiments

    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    own: dict[str, Experiment[Any, Any]] = {module.EXPERIMENT.name: module.EXPERIMENT for module in modules}
    return own | {experiment.name: experiment for experiment in declared_experiments()}
