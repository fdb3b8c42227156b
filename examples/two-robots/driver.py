"""Steers a robot on an eight: speed in m/s and turn rate in rad/s."""

import math

import numpy as np
from nervure import Node

ROUND_SECONDS = 10.0


def main() -> None:
    node = Node()
    for event in node:
        if event.id == "tick":
            turn = math.sin(2 * math.pi * node.now() / ROUND_SECONDS)
            node.send("cmd_vel", np.array([0.5, turn]))


if __name__ == "__main__":
    main()
