"""Nervure's link, run by `nervure link bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.link import connects
from nervure_lab.experiments.link.case import RECEIVER_ADDRESS, LinkCase
from nervure_lab.experiments.link.emulator import Commands, Flow, run_programs
from nervure_lab.machine import source_version
from nervure_lab.processes import Processes
from nervure_lab.toolchain import Toolchain


class Nervure:
    name = "nervure"
    title = "Nervure"
    settings = (
        "`nervure link bench`: encrypted, one stream, reliable, KEEP_LAST(10) unless the cell states another "
        "QoS; otherwise the defaults. The schedule begins when the receiver has opened the stream."
    )

    def prepare(self, toolchain: Toolchain) -> None:
        self._program = toolchain.workspace_program("nervure-cli", "nervure")
        self._keys = {}
        for end in ("receiver", "sender"):
            file = toolchain.directory / f"{end}.key"
            command = [str(self._program), "link", "key", str(file)]
            finished = subprocess.run(command, capture_output=True, text=True, check=False)
            if finished.returncode:
                raise Unavailable(f"`nervure link key` failed: {finished.stderr.strip()}")
            self._keys[end] = (str(file), finished.stdout.strip())

    def versions(self) -> dict[str, str]:
        return {"nervure": source_version()}

    def run(self, emulator: Path, case: LinkCase, seed: int, processes: Processes) -> dict[str, Any]:
        return run_programs(emulator, self._commands, case, seed, processes)

    def _commands(self, case: LinkCase, flow: Flow) -> Commands:
        bench = [str(self._program), "link", "bench"]
        receiver_key, receiver_public = self._keys["receiver"]
        sender_key, sender_public = self._keys["sender"]
        address = f"{RECEIVER_ADDRESS}:{flow.port}"
        receiver = ["serve", "--listen", address, "--key", receiver_key, "--allow", sender_public, "--json"]
        receiver += ["--receptions", str(flow.receptions)]
        sender = ["send", "--connect", address, "--key", sender_key, "--peer", receiver_public, "--json"]
        if case.connects:
            connect = [sys.executable, str(Path(connects.__file__)), str(case.connects)]
            return Commands([*bench, *receiver], [*connect, *bench, *sender, *_stream(case, 1)])
        return Commands([*bench, *receiver, "--once"], [*bench, *sender, *_stream(case, case.samples)])


def _stream(case: LinkCase, samples: int) -> list[str]:
    keeps = "keep_all:64" if case.keep_all else f"keep_last:{case.keep_last}"
    stream = f"size={case.payload_bytes},rate_hz={case.rate_hz},qos={keeps},count={samples}"
    if case.lifespan_ms:
        stream += f",lifespan={case.lifespan_ms:g}ms"
    return ["--stream", stream, "--drain", "30s" if case.keep_all or case.connects else "3s"]


ADAPTERS = [Nervure()]
