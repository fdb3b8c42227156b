"""One module for each peer or floor, with its ``ADAPTERS``."""

from __future__ import annotations

import importlib
import pkgutil

from nervure_lab.experiments.local.case import LocalAdapter


def all_adapters() -> list[LocalAdapter]:
    """Returns every adapter, floors first, then by name."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    adapters: list[LocalAdapter] = [adapter for module in modules for adapter in module.ADAPTERS]
    return sorted(adapters, key=lambda adapter: (adapter.kind != "floor", adapter.name))
