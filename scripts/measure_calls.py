#!/usr/bin/env python3
"""Measures what a request costs: a call and its answer, beside a sample that goes there and comes back.

    make demo && .venv/bin/python scripts/measure_calls.py [--bytes N] [--rounds N]

A client takes turns: a call of a service, then a sample to the same node, which sends it back: two hops, one
way each. Both carry as many bytes. In between it sleeps, so that nobody is awake already. The ratio is that
of the medians, its interval by bootstrap over blocks of turns. The machine should be quiet.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

PERIOD_SECONDS = 0.005
WARM_UP = 50
BLOCK = 25
RESAMPLINGS = 2000

SERVER = """
from nervure import Node

node = Node()
for event in node:
    if event.type == "REQUEST":
        event.reply(event.numpy())
    elif event.id == "there":
        node.send("back", event.numpy())
"""

CLIENT = """
import sys
import time

import numpy
from nervure import Node

count, size, period = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
node = Node()
value = numpy.zeros(size, numpy.uint8)
calls, hops = [], []
for _ in range(count):
    time.sleep(period)
    begin = time.perf_counter_ns()
    node.call("echo", value, timeout=5.0)
    calls.append(time.perf_counter_ns() - begin)
    time.sleep(period)
    begin = time.perf_counter_ns()
    node.send("there", value)
    event = node.next(timeout=5.0)
    hops.append(time.perf_counter_ns() - begin)
    assert event.id == "back", event
for call, hop in zip(calls, hops):
    print(call, hop)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    nodes = [
        {
            "id": "server",
            "path": "server.py",
            "services": ["echo"],
            "inputs": {"there": "client/there"},
            "outputs": ["back"],
        },
        {
            "id": "client",
            "path": "client.py",
            "args": f"{options.rounds + WARM_UP} {options.bytes} {PERIOD_SECONDS}",
            "clients": {"echo": "server/echo"},
            "inputs": {"back": "server/back"},
            "outputs": ["there"],
        },
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "server.py").write_text(SERVER, encoding="utf-8")
        (folder / "client.py").write_text(CLIENT, encoding="utf-8")
        (folder / "calls.yml").write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
        nervure = pathlib.Path(sys.executable).with_name("nervure")
        run = subprocess.run(
            [nervure, "run", "--json", "--name", f"calls-{os.getpid()}", folder / "calls.yml"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {"NERVURE_LOG_DIR": name},
        )
    report(run.stdout)


def report(lines: str) -> None:
    messages = [json.loads(line) for line in lines.splitlines()]
    texts = [m["text"].split() for m in messages if m["message"] == "log" and m["node"] == "client"]
    turns = [(int(call), int(hop)) for call, hop in texts[WARM_UP:]]
    blocks = [turns[i : i + BLOCK] for i in range(0, len(turns), BLOCK)]

    def medians(chosen: list[list[tuple[int, int]]]) -> tuple[float, float]:
        calls, hops = zip(*(turn for block in chosen for turn in block), strict=True)
        return statistics.median(calls), statistics.median(hops)

    def ratio(chosen: list[list[tuple[int, int]]]) -> float:
        call, hop = medians(chosen)
        return call / hop

    resampled = sorted(ratio(random.choices(blocks, k=len(blocks))) for _ in range(RESAMPLINGS))
    low, high = (resampled[int(share * RESAMPLINGS)] for share in (0.025, 0.975))
    call, hop = medians(blocks)
    print(
        f"call and answer {call / 1000:.1f} us, two hops {hop / 1000:.1f} us, "
        f"ratio {ratio(blocks):.2f} (95 % interval {low:.2f} to {high:.2f})"
    )


if __name__ == "__main__":
    main()
