"""Runs a function as a node in a process of its own: ``python -m nervure._function module:function``."""

from __future__ import annotations

import sys

from nervure._host import program

if __name__ == "__main__":
    # As the function sees it when the node shares a process.
    del sys.argv[0]
    program.function(sys.argv[0])
