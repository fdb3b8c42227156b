"""Take 50 ms for each number, and check that every one arrives, in order."""

import os
import sys
import time

from nervure import Node

MESSAGES = int(os.environ["MESSAGES"])
SECONDS_PER_MESSAGE = 0.05

arrived = []
for event in Node():
    if event.type == "INPUT":
        arrived.append(int(event.numpy()))
        time.sleep(SECONDS_PER_MESSAGE)

in_order = arrived == sorted(arrived)
print(f"{len(arrived)} of {MESSAGES} arrived, {'in order' if in_order else 'OUT OF ORDER'}")
sys.exit(0 if arrived == list(range(MESSAGES)) else 1)
