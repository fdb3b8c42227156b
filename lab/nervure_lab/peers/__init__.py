"""One module for each peer, with its ``PEER``. A new file is found by itself; files elsewhere
are found in the folder that ``NERVURE_LAB_PEERS`` names.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from pathlib import Path

from nervure_lab.peer import Peer


def all_peers() -> list[Peer]:
    """Returns every peer, Nervure first, then by name. Raises ``ValueError`` for a file without a peer."""
    names = [f"{__name__}.{info.name}" for info in pkgutil.iter_modules(__path__)]
    names += _names_elsewhere()
    peers: list[Peer] = [_peer_of(name) for name in names]
    return sorted(peers, key=lambda peer: (peer.name != "nervure", peer.name))


def _names_elsewhere() -> list[str]:
    folder = os.environ.get("NERVURE_LAB_PEERS")
    if not folder:
        return []
    if not Path(folder).is_dir():
        raise ValueError(f"NERVURE_LAB_PEERS: expected a folder with files of peers, got {folder}")
    if folder not in sys.path:
        sys.path.append(folder)
    return [file.stem for file in sorted(Path(folder).glob("*.py"))]


def _peer_of(module: str) -> Peer:
    imported = importlib.import_module(module)
    peer = getattr(imported, "PEER", None)
    if not isinstance(peer, Peer):
        raise ValueError(
            f"{imported.__file__}: expected a variable PEER with an object of a subclass of Peer"
        )
    return peer
