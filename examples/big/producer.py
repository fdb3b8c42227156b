"""Send messages of 64 bytes and 100 MB alternately, MESSAGES of each, with checksums."""

import os
import zlib

import numpy as np
from nervure import Node

MESSAGES = int(os.environ["MESSAGES"])
SIZES = {"small": 64, "big": 100_000_000}

random = np.random.default_rng(seed=1)
content = {output: random.integers(256, size=size, dtype=np.uint8) for output, size in SIZES.items()}

node = Node()
sent = 0
for event in node:
    if event.id != "tick":
        continue
    output = ("small", "big")[sent % 2]
    data = content[output]
    data[0] = sent % 256
    with node.loan(output, data.shape, data.dtype, metadata={"crc32": zlib.crc32(data)}) as sample:
        sample.array[:] = data
    sent += 1
    if sent == 2 * MESSAGES:
        break
