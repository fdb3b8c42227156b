"""One module for each peer, with its ``PEER``. A new file is found by itself."""

from __future__ import annotations

import importlib
import pkgutil

from nervure_lab.peer import Peer


def all_peers() -> list[Peer]:
    """Returns every peer, Nervure first, then by name."""
    names = [f"{__name__}.{info.name}" for info in pkgutil.iter_modules(__path__)]
    peers: list[Peer] = [importlib.import_module(name).PEER for name in names]
    return sorted(peers, key=lambda peer: (peer.name != "nervure", peer.name))
