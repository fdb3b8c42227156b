"""Writes or reads the vectors: `node.py write` or `node.py read`."""

import contextlib
import sys
from collections import Counter
from pathlib import Path

import vectors
from nervure import Node


def write(node: Node) -> None:
    for number, value in vectors.numbered():
        node.send("out", value.value, metadata={"vector": number})


def read(node: Node) -> None:
    expected = dict(vectors.numbered())
    found: Counter[str] = Counter()
    with Path("verdicts-python").open("w") as verdicts:
        for event in node:
            if event.type != "INPUT":
                continue
            if event.id == "damaged":
                verdict = "read" if is_read(event) else "refused"
                print(event.metadata["vector"], verdict, file=verdicts)
                continue
            value = expected[event.metadata["vector"]]
            try:
                value.check(event)
                found[event.id] += 1
            except Exception as error:
                print(f"wrong: {value.name} of {event.id}: {type(error).__name__}: {error}", flush=True)
    for writer, count in sorted(found.items()):
        print(f"{count} of {writer} are right", flush=True)


def is_read(event: object) -> bool:
    """Whether a damaged sample can be read. Each method may refuse it, without harm."""
    ways = (
        lambda: event.object,
        lambda: event.numpy(),
        lambda: event.text,
        lambda: event.bytes,
        lambda: event.value.to_pylist(),
    )
    for way in ways:
        with contextlib.suppress(Exception):
            way()
    try:
        event.value.validate()
    except Exception:
        return False
    return True


{"write": write, "read": read}[sys.argv[1]](Node())
