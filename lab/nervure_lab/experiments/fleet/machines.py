"""Machines on this one: network and process namespaces of their own, with a daemon in each. They end with
this process, and nothing of them is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nervure_lab.processes import ProcessTree, SeenProcess

PATIENCE_SECONDS = 60.0
MARK = "NERVURE_LAB_FLEET"
COORDINATOR_PORT = 7700

T = TypeVar("T")


@dataclass
class Host:
    """A set of namespaces."""

    pid: int
    """A process in it, seen from outside."""
    address: str

    def start(self, words: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Starts a program in it; paths have to be absolute."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--ipc", "--uts", "--mount", "--pid", "--"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
        return subprocess.Popen([*enter, *map(str, words)], stdin=subprocess.DEVNULL, **options)


class Machine:
    """A machine of the fleet."""

    def __init__(self, name: str, host: Host, command: Path, directory: Path) -> None:
        self.name, self.host, self._command = name, host, command
        self.state = directory / name
        self._log = directory / f"{name}.log"
        self._environment = os.environ | {
            "NERVURE_STATE": str(self.state),
            "NERVURE_LOG_DIR": str(directory / f"{name}-logs"),
            MARK: str(directory),
        }
        self._environment.pop("NERVURE_DATAFLOW", None)
        self.daemon: subprocess.Popen[str] | None = None

    def nervure(self, *words: str, check: bool = True) -> str:
        """Runs a command; returns its standard output."""
        ended = self.begin(*words)
        output, errors = ended.communicate()
        if check and ended.returncode:
            raise RuntimeError(f"`nervure {' '.join(words)}` on {self.name}: {output}{errors}{self.log()}")
        return output

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return self.host.start([self._command, *words], env=self._environment, stderr=subprocess.PIPE)

    def start_daemon(self, *words: str) -> None:
        log = self._log.open("a")
        self.daemon = self.host.start([self._command, *words], env=self._environment, stdout=log)

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def daemon_tree(self) -> SeenProcess:
        """The daemon as it is now."""
        assert self.daemon
        tree = ProcessTree()
        # It is the child of `nsenter`.
        tree.add_root(self.daemon.pid)
        tree.sample()
        daemons = [it for it in tree.seen.values() if it.command.startswith(str(self._command))]
        if not daemons:
            raise RuntimeError(f"the daemon of {self.name} has ended: {self.log()}")
        return min(daemons, key=lambda daemon: daemon.pid)


class Fleet:
    """Paired machines; the first one has the coordinator."""

    def __init__(self, machines: Sequence[Machine], directory: Path) -> None:
        self.machines, self.directory = list(machines), directory
        self.operator = self.machines[0]

    def pair(self) -> None:
        address = f"{self.operator.host.address}:{COORDINATOR_PORT}"
        self.operator.start_daemon("up", "--name", self.operator.name, "--address", address)
        wait_for("the coordinator", lambda: "nervure join" in self.operator.log())
        for machine in self.machines[1:]:
            invitation = self.operator.nervure("machine", "invite").split()
            machine.start_daemon(*invitation[1:], "--name", machine.name)
        wait_for("all machines", lambda: self.reachable() == len(self.machines))

    def reachable(self) -> int:
        listed = json.loads(self.operator.nervure("machine", "list", "--json"))["machines"]
        return sum(it["reachable"] is True and it["actual"] is not None for it in listed)

    def write(self, name: str, nodes: list[dict[str, Any]]) -> str:
        """Writes a dataflow file into a folder of its own; returns its path."""
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        roles: dict[str, dict[str, str]] = {node["machine"]: {} for node in nodes}
        file = folder / f"{name}.yml"
        # JSON is YAML.
        file.write_text(json.dumps({"machines": roles, "nodes": nodes}), encoding="utf-8")
        return str(file)

    def start(self, name: str, nodes: list[dict[str, Any]]) -> None:
        self.operator.nervure("start", self.write(name, nodes))

    def stop(self, name: str) -> dict[str, dict[str, Any]]:
        """Stops a dataflow; returns the counts of each topic that crossed a link."""
        stopped = json.loads(self.operator.nervure("stop", "-d", name, "--json").splitlines()[-1])
        return {stream["topic"]: stream for stream in stopped["streams"]}

    def processes(self, *words: str) -> list[int]:
        """The processes of this fleet with these words next to each other in their command line."""
        mark = f"{MARK}={self.directory}".encode()
        part = "\0".join(words).encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if part in (entry / "cmdline").read_bytes() and mark in (entry / "environ").read_bytes():
                    found.append(pid)
        return found


@contextlib.contextmanager
def emulated_hosts(emulator: Path, directory: Path, options: Sequence[str]) -> Iterator[list[Host]]:
    """Two hosts with an emulated link, which writes its counters to ``link.jsonl``."""
    sleep = ["sleep", "infinity"]
    words = [str(emulator), "run", *options, "--json", str(directory / "link.jsonl"), "--"]
    environment = os.environ | {MARK: str(directory)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [*words, *sleep, "---", *sleep], env=environment, stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        addresses = {"a": "10.77.0.1", "b": "10.77.0.2"}
        yield [
            Host(wait_for("the emulated link", partial(_sleeper, directory, name)), address)
            for name, address in addresses.items()
        ]
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def loopback_host() -> Iterator[Host]:
    """One host with a loopback interface only."""
    script = "ip link set lo up && echo up && exec sleep infinity"
    process = subprocess.Popen(
        ["unshare", "--net", "--ipc", "--uts", "--pid", "--mount-proc", "--kill-child", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        if process.stdout.readline().strip() != "up":
            raise RuntimeError("no network namespace can be made: run as root")
        tree = ProcessTree()
        tree.add_root(process.pid)
        tree.sample()
        (inside,) = (pid for pid in tree.seen if pid != process.pid)
        yield Host(inside, "127.0.0.1")
    finally:
        process.kill()
        process.wait()


def wait_for(what: str, find: Callable[[], T], every_seconds: float = 0.02) -> T:
    """Returns the first result that is neither false nor empty."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := find()):
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {PATIENCE_SECONDS:.0f} s")
        time.sleep(every_seconds)
    return found


def _sleeper(directory: Path, host: str) -> int:
    """The command of a host of the emulated link."""
    wanted = [f"{MARK}={directory}".encode(), f"LINKEMU_HOST={host}".encode()]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if all(it in variables for it in wanted) and (entry / "comm").read_text() == "sleep\n":
                return int(entry.name)
    return 0
