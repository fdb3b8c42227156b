"""Runs one cell: the emulator, both ends in it, the rendezvous, and what came out."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.link.contract import Cell, LinkAdapter
from nervure_lab.toolchain import LAB_DIRECTORY, REPOSITORY_DIRECTORY

START_SECONDS = 30.0
"""From the start of the emulator to the first sample, at most."""
CONNECT_SECONDS = 1.0
"""Between the moment at which both ends are ready and the first sample: time to connect."""
DRAIN_SECONDS = 3.0


def build_emulator() -> Path:
    """The emulator's release binary; raises ``Unavailable`` where it cannot be built or may not run."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "nervure-linkemu"]
    built = subprocess.run(command, cwd=REPOSITORY_DIRECTORY, capture_output=True, text=True, check=False)
    if built.returncode:
        raise Unavailable(f"nervure-linkemu cannot be built: {built.stderr.strip().splitlines()[-1]}")
    emulator = REPOSITORY_DIRECTORY / "target" / "release" / "nervure-linkemu"
    tried = subprocess.run(
        [emulator, "run", "--", "true", "---", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        raise Unavailable(tried.stderr.strip())
    return emulator


def run_cell(emulator: Path, adapter: LinkAdapter, cell: Cell, seed: int) -> dict[str, Any]:
    """One run. What goes wrong is a result like any other."""
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        directory = Path(name)
        commands = adapter.commands(cell)
        limit = START_SECONDS + cell.sending_seconds + DRAIN_SECONDS
        report, stdout = directory / "report.json", directory / "receiver.out"
        words = [
            *[str(emulator), "run", *cell.emulator_options(seed)],
            f"--congestion-control={adapter.congestion_control}",
            *["--json", str(directory / "emulator.json"), "--stop-after", str(limit), "--until", "a"],
            *["--", "sh", "-c", f'exec "$@" >{stdout}', "sh", *commands.receiver],
            *["---", "sh", "-c", 'exec "$@" >/dev/null', "sh", *commands.sender],
        ]
        environment = os.environ | {
            "LAB_CELL": json.dumps(asdict(cell)),
            "LAB_RENDEZVOUS": str(directory / "rendezvous"),
            "LAB_REPORT": str(report),
            "PYTHONPATH": str(LAB_DIRECTORY),
        }
        with _rendezvous(directory / "rendezvous"):
            finished = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return {
            "adapter": adapter.name,
            "cell": asdict(cell),
            "seed": seed,
            "exit_code": finished.returncode,
            "stderr": finished.stderr[-2000:],
            "link": _last_line(directory / "emulator.json"),
            "receiver": _last_line(report) or _last_line(stdout),
        }


@contextlib.contextmanager
def _rendezvous(path: Path) -> Any:
    """Tells both ends when to start, once both have said that they are ready."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(2)

    def serve() -> None:
        with contextlib.suppress(OSError):
            ends = [listener.accept()[0] for _ in range(2)]
            for end in ends:
                end.recv(100)
            start = time.monotonic_ns() + int(CONNECT_SECONDS * 1e9)
            for end in ends:
                end.sendall(f"{start}\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # A thread that waits in accept is woken by this, not by closing.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _last_line(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    lines = [line for line in path.read_text().splitlines() if line.startswith("{")]
    with contextlib.suppress(json.JSONDecodeError):
        result: dict[str, Any] | None = json.loads(lines[-1]) if lines else None
        return result
    return None
