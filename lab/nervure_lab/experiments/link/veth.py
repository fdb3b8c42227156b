"""Runs two scripts in network namespaces with a pair of Ethernet devices between them. It needs root, and
ends with the receiver; the namespaces have no names and disappear with it.

    python -m nervure_lab.experiments.link.veth RECEIVER SENDER
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from nervure_lab.experiments.link.case import RECEIVER_ADDRESS
from nervure_lab.toolchain import LAB_DIRECTORY

SENDER_ADDRESS = "10.77.0.2"
TIMEOUT_SECONDS = 120.0


def command(receiver: str, sender: str) -> list[str | Path]:
    """The command that runs the two scripts."""
    return ["env", f"PYTHONPATH={LAB_DIRECTORY}", sys.executable, "-m", __name__, receiver, sender]


def main(receiver: str, sender: str) -> int:
    if shutil.which("ip") is None:
        raise SystemExit("error: `ip` is not installed: apt install iproute2; it also needs root")
    with _namespace() as a, _namespace() as b:
        names = ["link0", "netns", a, "type", "veth", "peer", "name", "link0", "netns", b]
        _run(["ip", "link", "add", *names])
        for host, address in ((a, RECEIVER_ADDRESS), (b, SENDER_ADDRESS)):
            _run([*_inside(host), "ip", "addr", "add", f"{address}/24", "dev", "link0"])
            _run([*_inside(host), "ip", "link", "set", "link0", "up"])
        sending = subprocess.Popen([*_inside(b), "sh", "-c", sender])
        try:
            ended = subprocess.run([*_inside(a), "sh", "-c", receiver], timeout=TIMEOUT_SECONDS, check=False)
        finally:
            sending.terminate()
            sending.wait()
    return ended.returncode


@contextlib.contextmanager
def _namespace() -> Iterator[str]:
    """Yields the id of a process in a new network namespace; it waits for the end of its input."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    try:
        if holder.stdout.readline() != "ready\n":
            raise SystemExit("error: cannot create a network namespace here: root is needed")
        yield str(holder.pid)
    finally:
        holder.stdin.close()
        holder.wait()


def _inside(host: str) -> list[str]:
    return ["nsenter", f"--net=/proc/{host}/ns/net"]


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
