"""One module for each peer, with its ``ADAPTERS``."""

from __future__ import annotations

import importlib
import pkgutil

from nervure_lab.experiments.link.case import LinkAdapter


def all_adapters() -> list[LinkAdapter]:
    """Returns every adapter, Nervure first, then by name."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    adapters: list[LinkAdapter] = [adapter for module in modules for adapter in module.ADAPTERS]
    return sorted(adapters, key=lambda adapter: (adapter.name != "nervure", adapter.name))
