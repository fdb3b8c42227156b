"""Participants of Cyclone DDS with nothing to send: ``writers N`` or ``readers N`` opens N of them, each with
one writer or reader of a topic of its own, and prints when all readers have found their writers. Runs in the
environment of Cyclone DDS. Its types are declared by annotations that must not be strings.
"""

import sys
import threading
import time
from dataclasses import dataclass

from cyclonedds.core import Listener
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic


@dataclass
class Number(IdlStruct, typename="Number"):  # type: ignore[call-arg,misc]
    value: int


class Matches(Listener):  # type: ignore[misc]
    """Counts readers that have found a writer."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0
        self.lock = threading.Lock()

    def on_subscription_matched(self, reader: DataReader, status: object) -> None:
        with self.lock:
            self.found += 1


def main() -> None:
    role, count = sys.argv[1], int(sys.argv[2])
    matches, kept = Matches(), []
    for index in range(count):
        participant = DomainParticipant(0)
        topic = Topic(participant, f"topic{index}", Number)
        if role == "writers":
            kept.append((participant, DataWriter(participant, topic)))
        else:
            kept.append((participant, DataReader(participant, topic, listener=matches)))
    print("opened", time.time_ns(), flush=True)
    while role == "readers" and matches.found < count:
        time.sleep(0.002)
    print("matched", time.time_ns(), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
