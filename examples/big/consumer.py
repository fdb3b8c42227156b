"""Check every byte of every message, and compare the latencies of small and big messages."""

import os
import sys
import time
import zlib
from statistics import median

from nervure import Node

MESSAGES = int(os.environ["MESSAGES"])

bytes_received = {"big": 0, "small": 0}
latency_micros = {"big": [], "small": []}
damaged = 0
started = None
for event in Node():
    if event.type == "INPUT":
        started = started or time.monotonic()
        data = event.numpy()  # a view of the producer's memory: nothing is copied
        latency_micros[event.id].append(event.latency * 1e6)
        bytes_received[event.id] += data.nbytes
        damaged += zlib.crc32(data) != event.metadata["crc32"]
seconds = time.monotonic() - (started or time.monotonic())

received = len(latency_micros["big"])
print(f"{received} of {MESSAGES} messages of 100 MB arrived, {damaged} damaged")
if received:
    print(f"{bytes_received['big'] / seconds / 1e6:.0f} MB/s, every byte checked")
    for size, name in (("64 B", "small"), ("100 MB", "big")):
        print(f"from publication to this node, {size:>6}: median {median(latency_micros[name]):.0f} us")
sys.exit(0 if received == MESSAGES and not damaged else 1)
