"""A recorded 9-axis IMU at its own 99 Hz: gyroscope in deg/s, accelerometer in g, magnetometer in uT."""

import argparse
from pathlib import Path

import numpy as np
from nervure import Node
from replay import at_recorded_times

RECORDING = Path(__file__).parent / "data" / "imu_9axis_99hz.csv"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--start", type=float, default=0.0, help="start at this time of the recording, in seconds"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="play this many seconds")
    arguments = parser.parse_args()

    rows = np.loadtxt(RECORDING, delimiter=",", skiprows=1)
    rows[:, 0] -= arguments.start
    rows = rows[(rows[:, 0] >= 0) & (rows[:, 0] < arguments.seconds)]

    node = Node()
    for stamp, sample in at_recorded_times(node, ((row[0], row[1:]) for row in rows)):
        node.send("sample", sample.astype(np.float32), stamp=stamp)


if __name__ == "__main__":
    main()
