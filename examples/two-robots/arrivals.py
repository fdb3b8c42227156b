"""Notes when each sample arrived and how old it was then, and keeps a picture a second.

The age is the time since the sample's stamp. It is right only where all machines have one clock, as in this
example.
"""

import os
from pathlib import Path

import cv2
import numpy as np
from nervure import Node

RESULTS = Path(os.environ["RESULTS"])


def main() -> None:
    node = Node()
    arrivals: dict[str, list[tuple[float, float]]] = {name: [] for name in node.inputs}
    kept_at = dict.fromkeys(node.inputs, 0.0)
    for event in node:
        if event.type != "INPUT":
            continue
        arrived = node.now()
        arrivals[event.id].append((arrived, arrived - event.stamp))
        if event.id.startswith("image") and arrived - kept_at[event.id] > 1.0:
            kept_at[event.id] = arrived
            picture = cv2.resize(cv2.cvtColor(event.numpy(), cv2.COLOR_YUV2BGR_I420), (480, 270))
            number = len(arrivals[event.id]) - 1
            cv2.imwrite(str(RESULTS / f"{event.id}-{number:05}.png"), picture)
    np.savez(RESULTS / f"{node.id}.npz", **{name: np.array(rows) for name, rows in arrivals.items()})


if __name__ == "__main__":
    main()
