"""Observers and recorders: commands that inspect the dataflow under test, and are killed themselves."""

import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .running import PATIENCE


@dataclass
class Watchers:
    """The watchers of one round."""

    nervure: Path
    environment: dict[str, str]
    folder: Path
    # A disk too small for recordings.
    small_disk: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    recordings: list[Path] = field(default_factory=list)

    def start(self, kind: str, topic: str, keeper: int) -> None:
        command = [str(self.nervure)]
        if kind == "observe":
            command += ["topic", "echo", "--json", "--dataflow", str(keeper), topic]
        else:
            disk = self.small_disk if kind == "record on a small disk" else self.folder
            recording = disk / f"{len(self.recordings)}.mcap"
            self.recordings.append(recording)
            command += ["record", "--dataflow", str(keeper), "--output", str(recording), topic]
        with (self.folder / "watchers").open("ab") as stderr:
            self.running.append(
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                )
            )

    def pause(self, seconds: float) -> None:
        """Stops all watchers for a while. The dataflow must not be affected."""
        for watcher in self.running:
            watcher.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for watcher in self.running:
            watcher.send_signal(signal.SIGCONT)

    def kill(self) -> int:
        """Kills all that run, and returns their number."""
        killed = 0
        for watcher in self.running:
            killed += watcher.poll() is None
            watcher.kill()
            watcher.wait()
        self.running.clear()
        return killed

    def wait(self) -> list[str]:
        """Watchers that do not end with their dataflow."""
        deadline = time.monotonic() + PATIENCE
        left = []
        for watcher in self.running:
            try:
                watcher.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                left.append(" ".join(map(str, watcher.args)))
        return left

    def full_disks(self) -> int:
        """The number of recorders' messages of a full disk."""
        text = (self.folder / "watchers").read_text(errors="replace") if self.recordings else ""
        return text.count("No space left on device")

    def unreadable(self) -> list[str]:
        """Unreadable recordings. A recorder that ended before its first byte has none."""
        problems = []
        for recording in self.recordings:
            if not recording.exists() or recording.stat().st_size == 0:
                continue
            looked = subprocess.run(
                [str(self.nervure), "info", str(recording)],
                capture_output=True,
                text=True,
                env=self.environment,
            )
            # 3: readable up to the kill of its recorder.
            if looked.returncode not in (0, 3):
                problems.append(f"{recording.name} of {recording.stat().st_size} bytes: {looked.stderr}")
        return problems
