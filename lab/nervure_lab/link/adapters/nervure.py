"""Nervure's link, by its own benchmark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nervure_lab.contract import Unavailable
from nervure_lab.link.contract import RECEIVER_ADDRESS, Cell, Commands, Flow
from nervure_lab.machine import source_version
from nervure_lab.toolchain import LAB_DIRECTORY, REPOSITORY_DIRECTORY, Toolchain

_ENDPOINTS = LAB_DIRECTORY / "nervure_lab" / "link" / "endpoints"


class Nervure:
    name = "nervure"
    title = "Nervure"
    settings = (
        "`nervure link bench`: encrypted, one stream, reliable, KEEP_LAST(10) where nothing else is said; "
        "otherwise the defaults. The schedule begins when the receiver has opened the stream."
    )
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain, directory: Path) -> None:
        self._program = REPOSITORY_DIRECTORY / "target" / "release" / "nervure"
        build = ["cargo", "build", "--release", "--locked", "-p", "nervure-cli"]
        self._keys = {}
        try:
            subprocess.run(build, cwd=REPOSITORY_DIRECTORY, check=True, capture_output=True, text=True)
            for end in ("receiver", "sender"):
                file = directory / f"{end}.key"
                made = subprocess.run(
                    [self._program, "link", "key", file], check=True, capture_output=True, text=True
                )
                self._keys[end] = (str(file), made.stdout.strip())
        except subprocess.CalledProcessError as error:
            last = error.stderr.strip().splitlines()[-1:] or ["no word of why"]
            raise Unavailable(f"`{' '.join(map(str, error.cmd[:3]))}` failed: {last[0]}") from error

    def versions(self) -> dict[str, str]:
        return {"nervure": source_version()}

    def commands(self, cell: Cell, flow: Flow) -> Commands:
        bench = [str(self._program), "link", "bench"]
        receiver_key, receiver_public = self._keys["receiver"]
        sender_key, sender_public = self._keys["sender"]
        address = f"{RECEIVER_ADDRESS}:{flow.port}"
        receiver = ["serve", "--listen", address, "--key", receiver_key, "--allow", sender_public, "--json"]
        receiver += ["--receptions", str(flow.receptions)]
        sender = ["send", "--connect", address, "--key", sender_key, "--peer", receiver_public, "--json"]
        if cell.connects:
            connect = [sys.executable, str(_ENDPOINTS / "connects.py"), str(cell.connects)]
            return Commands([*bench, *receiver], [*connect, *bench, *sender, *_stream(cell, 1)])
        return Commands([*bench, *receiver, "--once"], [*bench, *sender, *_stream(cell, cell.samples)])


def _stream(cell: Cell, samples: int) -> list[str]:
    keeps = "keep_all:64" if cell.keep_all else f"keep_last:{cell.keep_last}"
    stream = f"size={cell.payload_bytes},rate_hz={cell.rate_hz},qos={keeps},count={samples}"
    if cell.lifespan_ms:
        stream += f",lifespan={cell.lifespan_ms:g}ms"
    return ["--stream", stream, "--drain", "30s" if cell.keep_all or cell.connects else "3s"]


ADAPTERS = [Nervure()]
