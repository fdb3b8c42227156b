"""Shows where a node hangs: on a signal of the keeper, the stacks of all threads are written to stderr.

This also works while the interpreter is stuck: the handler is in C, and needs neither the interpreter nor
its lock.
"""

from __future__ import annotations

import faulthandler
import os
import signal

from nervure._native import _CONTROL_FD_VARIABLE, _HOST_FD_VARIABLE, _STACKS_SIGNAL

_STDERR = 2


def enable() -> None:
    """Installs the handler in a process of nodes, unless the program has its own for this signal."""
    is_node = _CONTROL_FD_VARIABLE in os.environ or _HOST_FD_VARIABLE in os.environ
    if is_node and signal.getsignal(_STACKS_SIGNAL) is signal.SIG_DFL:
        faulthandler.register(_STACKS_SIGNAL, file=_STDERR, all_threads=True)
