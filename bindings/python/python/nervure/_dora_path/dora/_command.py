"""The functions that run the command ``nervure``."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def run(
    dataflow_path: str | os.PathLike[str], uv: bool | None = None, stop_after: float | None = None
) -> None:
    """Builds and runs a dataflow file, as ``nervure run --build`` does.

    Args:
        uv: Give nodes Python environments of their own, by ``uv``.
        stop_after: Stop the dataflow after this time, in seconds.
    """
    options = ["--build", "--uv"] if uv else ["--build"]
    if stop_after is not None:
        if not 0 <= stop_after < float("inf"):
            raise RuntimeError(f"invalid stop_after of {stop_after} seconds")
        options += ["--stop-after", f"{round(stop_after * 1000)}ms"]
    _execute("run", *options, os.fspath(dataflow_path))


def build(
    dataflow_path: str | os.PathLike[str],
    uv: bool | None = None,
    coordinator_addr: str | None = None,
    coordinator_port: int | None = None,
    force_local: bool = False,
) -> None:
    """Runs the ``build`` commands of a dataflow file, as ``nervure build`` does.

    Builds are always local. With ``uv``, nodes get Python environments of their own.
    """
    if coordinator_addr is not None or coordinator_port is not None:
        raise RuntimeError("dora.build builds on this machine: Nervure has no coordinator")
    _execute("build", *(["--uv"] if uv else []), os.fspath(dataflow_path))


def start_runtime() -> NoReturn:
    """Not supported: ``nervure run`` starts the hosts of operators itself."""
    raise RuntimeError("dora.start_runtime is not needed: `nervure run` starts the operators of a dataflow")


def _execute(*arguments: str) -> None:
    import subprocess

    # The command of this environment, or else the one on the PATH.
    beside = f"{sys.prefix}/bin/nervure"
    command = beside if os.access(beside, os.X_OK) else "nervure"
    try:
        finished = subprocess.run([command, *arguments], check=False)
    except FileNotFoundError as error:
        text = "the command `nervure` is not on the PATH: activate the environment that has its wheel"
        raise RuntimeError(text) from error
    if finished.returncode != 0:
        raise RuntimeError(f"`nervure {' '.join(arguments)}` exited with code {finished.returncode}")
