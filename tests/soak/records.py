"""The nodes' own records of their samples; `crates/cli/tests/nodes/soak_node.rs` describes the lines."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

# Incarnation of the producer, its number of the sample, sequence in the data plane.
Received = tuple[int, int, int]


@dataclass
class Sent:
    """Samples that one process of a producer sent to one output."""

    intended: set[int] = field(default_factory=set)
    # By number: edges that queued it, and edges that counted it as missed. `send` of Python returns neither.
    receipts: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    # Every edge counted these as missed, because memory was short.
    without_memory: set[int] = field(default_factory=set)

    @property
    def uncertain(self) -> int:
        """Samples without a recorded outcome, because the process was killed."""
        return len(self.intended) - len(self.receipts) - len(self.without_memory) - len(self.stopped)

    stopped: set[int] = field(default_factory=set)


@dataclass
class Records:
    """The records of a round."""

    # By output, then incarnation.
    sent: defaultdict[str, defaultdict[int, Sent]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Sent))
    )
    # By input, then incarnation of the consumer.
    received: defaultdict[str, dict[int, list[Received]]] = field(default_factory=lambda: defaultdict(dict))
    # By input, then incarnation of the consumer: last words of a failed producer, as its incarnation and the
    # number of samples received before.
    last_words: defaultdict[str, dict[int, list[tuple[int, int]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    damaged: list[str] = field(default_factory=list)


def read(folder: Path) -> Records:
    records = Records()
    for path in folder.iterdir():
        node, _, incarnation = path.name.rpartition(".")
        if incarnation.isdigit():
            read_process(records, node, int(incarnation), path)
    return records


def read_process(records: Records, node: str, incarnation: int, path: Path) -> None:
    lines = path.read_text(errors="replace").split("\n")
    # The last line is empty, or was cut off by a kill.
    for line in lines[:-1]:
        kind, name, *values = line.split(" ")
        if kind == "=":
            sample = (int(values[0]), int(values[1]), int(values[2]))
            records.received[f"{node}/{name}"].setdefault(incarnation, []).append(sample)
        elif kind == "f":
            before = len(records.received[f"{node}/{name}"].get(incarnation, []))
            words = records.last_words[f"{node}/{name}"].setdefault(incarnation, [])
            words.append((int(values[0]), before))
        elif kind == "p":
            continue
        elif kind == "x":
            records.damaged.append(f"{node} (incarnation {incarnation}): {line}")
        else:
            sent, number = records.sent[f"{node}/{name}"][incarnation], int(values[0])
            if kind == ">":
                sent.intended.add(number)
            elif kind == "<":
                sent.receipts[number] = (int(values[1]), int(values[2])) if len(values) == 3 else None
            elif values[1] == "memory":
                sent.without_memory.add(number)
            else:
                sent.stopped.add(number)


def last_param(folder: Path, node: str, incarnation: int) -> int | None:
    """The latest value of its parameter `number` that a process received."""
    try:
        lines = (folder / f"{node}.{incarnation}").read_text(errors="replace").split("\n")[:-1]
    except FileNotFoundError:
        return None
    values = [line.removeprefix("p number ") for line in lines if line.startswith("p number ")]
    return int(values[-1]) if values else None
