"""A recorded 9-axis IMU as a robot's: gyroscope in deg/s, accelerometer in g, magnetometer in uT."""

import os
from itertools import cycle
from pathlib import Path

import numpy as np
from nervure import Node

RECORDING = Path(os.environ["RECORDINGS"]) / "imu_9axis_99hz.csv"


def main() -> None:
    rows = cycle(np.loadtxt(RECORDING, delimiter=",", skiprows=1)[:, 1:].astype(np.float32))
    node = Node()
    for event in node:
        if event.id == "tick":
            node.send("sample", next(rows))


if __name__ == "__main__":
    main()
