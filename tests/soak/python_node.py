"""`crates/cli/tests/nodes/soak_node.rs` in Python, with the orders that Python nodes get."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from nervure import Node
from nervure.errors import Stopped

MASK = 2**64 - 1
NOISE_BYTES = 65_537


def main() -> None:
    orders, id = json.loads(sys.argv[1]), sys.argv[2]
    folder = Path(os.environ["SOAK_RECORDS"])
    for start in range(orders.get("failing_starts", 0)):
        try:
            (folder / f"{id}.failed-{start}").touch(exist_ok=False)
        except FileExistsError:
            continue
        raise RuntimeError("as ordered")
    for kind in orders.get("children", []):
        script = "sleep 1000 &" if kind == "group" else "setsid sleep 1000 &"
        subprocess.run(["sh", "-c", script], check=True)
    node = Node()
    with (folder / f"{node.id}.{node.incarnation}").open("wb", buffering=0) as record:
        Worker(node, orders, record).work()


class Worker:
    """A node at work."""

    def __init__(self, node, orders, record) -> None:
        self.node, self.orders, self.record = node, orders, record
        self.noise = noise()
        self.sent = self.received = 0
        self.held: deque = deque()

    def work(self) -> None:
        pause = self.orders.get("pause_micros", 0) / 1e6
        count = self.orders.get("count")
        due = time.monotonic()
        read = 0
        for name, value in self.node.params.items():
            self.write(f"p {name} {json.dumps(value)}")
        while True:
            now = time.monotonic()
            if (reads := self.node.now_nanos()) < read:
                self.write(f"x clock it reads {reads} after {read}")
            read = reads
            if pause and now >= due:
                due = now + pause
                for _ in range(self.orders.get("burst", 1)):
                    if self.sent == count or not self.send_all(None):
                        return
            timeout = max(0.0, min(due - now, 0.1)) if pause else 0.1
            event = self.node.next(timeout=timeout)
            if event is not None and event.type == "STOP":
                return
            if event is not None and event.type == "PARAM":
                self.write(f"p {event.param} {json.dumps(event.value)}")
            if event is not None and event.type == "INPUT" and event.metadata.get("on_failure"):
                self.write(f"f {event.id} {event.incarnation}")
            elif event is not None and event.type == "INPUT":
                self.receive(event)
                is_silent = event.id in self.orders.get("silent", [])
                if not pause and not is_silent and not self.send_all(event):
                    return
                self.held.append((time.monotonic(), event))
            del event
            self.let_go()
            for input in self.orders.get("latest", []):
                self.node.latest(input)
            hang_after = self.orders.get("hang_after", 0)
            if hang_after and self.node.incarnation == 0 and self.sent + self.received >= hang_after:
                time.sleep(1000)

    def send_all(self, like) -> bool:
        """False when the dataflow stops."""
        number, sizes = self.sent, self.orders["bytes"]
        self.sent += 1
        payload = self.payload(number, sizes[number % len(sizes)])
        for output in self.node.outputs:
            self.write(f"> {output} {number}")
            try:
                self.node.send(output, payload, like=like)
            except Stopped:
                self.write(f"! {output} {number} stopped")
                return False
            self.write(f"< {output} {number}")
        return True

    def receive(self, event) -> None:
        self.received += 1
        payload = event.bytes
        mark = payload[:16]
        incarnation, number = int.from_bytes(mark[:8], "little"), int.from_bytes(mark[8:], "little")
        if incarnation == event.incarnation and payload == self.payload(number, len(payload), incarnation):
            self.write(f"= {event.id} {incarnation} {number} {event.sequence}")
        else:
            self.write(f"x {event.id} its first mark is {mark!r} ({event.incarnation}, {event.sequence})")
        time.sleep(self.orders.get("work_micros", 0) / 1e6)

    def let_go(self) -> None:
        most, age = self.orders.get("hold", 0), self.orders.get("hold_millis", 0) / 1e3
        while len(self.held) > most or (self.held and time.monotonic() - self.held[0][0] > age):
            self.held.popleft()

    def payload(self, number: int, size: int, incarnation: int | None = None) -> bytes:
        incarnation = self.node.incarnation if incarnation is None else incarnation
        key = ((number + (incarnation << 32)) * 0x9E37_79B9_7F4A_7C15) & MASK
        start = (key >> 32) % NOISE_BYTES
        piece = self.noise[start : start + NOISE_BYTES]
        mark = incarnation.to_bytes(8, "little") + number.to_bytes(8, "little")
        between = size - 2 * len(mark)
        return mark + (piece * (between // NOISE_BYTES + 1))[:between] + mark

    def write(self, line: str) -> None:
        self.record.write(f"{line}\n".encode())


def noise() -> bytes:
    state = 0x9E37_79B9_7F4A_7C15
    made = bytearray()
    for _ in range(2 * NOISE_BYTES):
        state ^= (state << 13) & MASK
        state ^= state >> 7
        state ^= (state << 17) & MASK
        made.append(state & 0xFF)
    return bytes(made)


if __name__ == "__main__":
    main()
