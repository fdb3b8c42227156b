"""Lets the keeper see where a node hangs: on its signal the stacks of all threads go to stderr.

It works while the interpreter is stuck, too: the handler is in C, and needs neither the interpreter nor its
lock.
"""

from __future__ import annotations

import faulthandler
import os
import signal

from nervure._native import _CONTROL_FD_VARIABLE, _STACKS_SIGNAL

_STDERR = 2


def enable() -> None:
    """Installs the handler in a node. A program that has one of its own for this signal keeps it."""
    is_node = _CONTROL_FD_VARIABLE in os.environ
    if is_node and signal.getsignal(_STACKS_SIGNAL) is signal.SIG_DFL:
        faulthandler.register(_STACKS_SIGNAL, file=_STDERR, all_threads=True)
