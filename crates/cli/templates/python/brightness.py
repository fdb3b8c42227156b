"""A task: computes something from each picture."""

import numpy as np
from nervure import Node


def brightness(image: np.ndarray) -> float:
    """The mean of all pixels, from 0 to 255."""
    return float(image.mean())


def main() -> None:
    node = Node()
    for event in node:
        if event.id == "image":
            # `like` keeps the time at which the picture was taken.
            node.send("brightness", brightness(event.numpy()), like=event)


if __name__ == "__main__":
    main()
