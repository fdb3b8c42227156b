"""Estimate positions and velocities of cart and pendulum from noisy positions, by an alpha-beta filter."""

import numpy as np
from nervure import Node

STEP = 0.002
ALPHA, BETA = 0.12, 0.008

node = Node()
state = np.zeros(4)  # position, speed, angle, turn rate
is_first = True
for event in node:
    if event.id == "measured":
        measured = event.numpy()
        if is_first:
            state[[0, 2]], is_first = measured, False
        state[[0, 2]] += state[[1, 3]] * STEP
        error = measured - state[[0, 2]]
        state[[0, 2]] += ALPHA * error
        state[[1, 3]] += BETA / STEP * error
        node.send("state", state, like=event)
