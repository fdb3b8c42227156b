"""Imports the package ``nervure`` that holds this folder, also where it is not installed.

The extension module uses Python's stable ABI, so it loads in any Python from 3.10 on.
"""

import os
import sys

if "nervure" not in sys.modules:
    # .../nervure/_dora_path/dora/_nervure.py
    _packages = os.path.abspath(__file__)  # noqa: PTH100  (the import of pathlib takes some milliseconds)
    for _ in range(4):
        _packages = os.path.dirname(_packages)  # noqa: PTH120
    # First for this import only: other packages of that environment do not belong to this program.
    sys.path.insert(0, _packages)
    try:
        import nervure
    finally:
        sys.path.remove(_packages)
else:
    import nervure

native = nervure._native

__all__ = ["native", "nervure"]
