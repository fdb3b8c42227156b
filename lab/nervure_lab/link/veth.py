"""Runs two scripts in network namespaces with a pair of Ethernet devices between them: `python -m
nervure_lab.link.veth RECEIVER SENDER`. Ends with the receiver. Needs root; the namespaces have no names and
end with it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

from nervure_lab.link.contract import RECEIVER_ADDRESS

SENDER_ADDRESS = "10.77.0.2"
PATIENCE_SECONDS = 120.0


def main(receiver: str, sender: str) -> int:
    if shutil.which("ip") is None:
        raise SystemExit("error: `ip` is not installed: apt install iproute2; and root is needed")
    with _namespace() as a, _namespace() as b:
        names = ["link0", "netns", a, "type", "veth", "peer", "name", "link0", "netns", b]
        _run(["ip", "link", "add", *names])
        for host, address in ((a, RECEIVER_ADDRESS), (b, SENDER_ADDRESS)):
            _run([*_inside(host), "ip", "addr", "add", f"{address}/24", "dev", "link0"])
            _run([*_inside(host), "ip", "link", "set", "link0", "up"])
        sending = subprocess.Popen([*_inside(b), "sh", "-c", sender])
        try:
            ended = subprocess.run([*_inside(a), "sh", "-c", receiver], timeout=PATIENCE_SECONDS, check=False)
        finally:
            sending.terminate()
            sending.wait()
    return ended.returncode


@contextlib.contextmanager
def _namespace() -> Iterator[str]:
    """A network namespace: that of the process whose id this yields, which waits for the end of its input."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    try:
        if holder.stdout.readline() != "ready\n":
            raise SystemExit("error: no network namespace can be made here: root is needed")
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
