"""Log lines on stdout, which ``nervure run`` shows and stores with their level.

dora takes over Python's ``logging``: a program that does not call ``logging.basicConfig`` logs every level.
"""

from __future__ import annotations

import sys
from typing import Any

_LEVELS = {
    "error": "ERROR",
    "warn": "WARN",
    "warning": "WARN",
    "info": "INFO",
    "debug": "DEBUG",
    "trace": "TRACE",
}
# Begins with the level: `nervure run` reads it from the line.
_FORMAT = "%(levelname)s %(name)s: %(message)s"


def log(level: str, message: str, target: str | None = None, fields: dict[str, str] | None = None) -> None:
    """Prints one line with its level. An unknown level is ``info``, as in dora."""
    source = f"{target}: " if target else ""
    tail = "".join(f" {key}={value}" for key, value in sorted((fields or {}).items()))
    print(f"{_LEVELS.get(level.lower(), 'INFO')} {source}{message}{tail}", flush=True)


def warn(message: str) -> None:
    """Prints a warning of this package."""
    log("warn", message, "dora")


def take_over() -> None:
    """Makes ``logging.basicConfig`` write to stdout, at every level unless one is given.

    The first record of a program that configured nothing calls ``basicConfig`` as well.
    """
    import logging

    if hasattr(logging.basicConfig, "is_of_dora"):
        return
    configure = logging.basicConfig

    def basic_config(**settings: Any) -> None:
        if not {"handlers", "filename", "stream"} & settings.keys():
            settings["stream"] = sys.stdout
            settings.setdefault("format", _FORMAT)
        settings.setdefault("level", logging.NOTSET)
        configure(**settings)

    basic_config.is_of_dora = True  # type: ignore[attr-defined]
    logging.basicConfig = basic_config
