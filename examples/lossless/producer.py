"""Count to MESSAGES, one number per tick. `send` waits while the consumer's queue is full."""

import os

from nervure import Node

MESSAGES = int(os.environ["MESSAGES"])

node = Node()
sent = 0
for event in node:
    if event.id == "tick":
        node.send("number", sent)
        sent += 1
        if sent == MESSAGES:
            break
print(f"{sent} sent")
