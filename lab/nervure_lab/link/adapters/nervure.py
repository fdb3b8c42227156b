"""Nervure's link, by its own benchmark."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nervure_lab.contract import Unavailable
from nervure_lab.link.contract import PORT, RECEIVER_ADDRESS, Cell, Commands
from nervure_lab.machine import source_version
from nervure_lab.toolchain import REPOSITORY_DIRECTORY, Toolchain


class Nervure:
    name = "nervure"
    title = "Nervure"
    settings = (
        "`nervure link bench`: encrypted, one stream KEEP_LAST(10), reliable; otherwise the defaults. It "
        "connects before the schedule begins."
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

    def commands(self, cell: Cell) -> Commands:
        bench = [str(self._program), "link", "bench"]
        receiver_key, receiver_public = self._keys["receiver"]
        sender_key, sender_public = self._keys["sender"]
        address = f"{RECEIVER_ADDRESS}:{PORT}"
        stream = f"size={cell.payload_bytes},rate_hz={cell.rate_hz},qos=keep_last:10,count={cell.samples}"
        receiver = ["serve", "--listen", address, "--key", receiver_key, "--allow", sender_public, "--once"]
        sender = ["send", "--connect", address, "--key", sender_key, "--peer", receiver_public]
        sender += ["--stream", stream, "--drain", "3s"]
        return Commands([*bench, *receiver, "--json"], [*bench, *sender, "--json"])


ADAPTERS = [Nervure()]
