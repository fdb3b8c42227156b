"""Attitude from a 9-axis IMU by x-io's Fusion, a complementary filter.

It ignores the accelerometer under acceleration, and the magnetometer near iron.
"""

import imufusion
import numpy as np
from nervure import Node

SAMPLE_RATE_HZ = 99
GAIN = 0.5
GYROSCOPE_RANGE_DEG_PER_S = 2000
REJECTION_DEG = 10
REJECTION_TIMEOUT_S = 5


def main() -> None:
    ahrs = imufusion.Ahrs()
    ahrs.set_settings(
        imufusion.AhrsSettings(
            SAMPLE_RATE_HZ,
            imufusion.CONVENTION_NWU,
            GAIN,
            GYROSCOPE_RANGE_DEG_PER_S,
            REJECTION_DEG,
            REJECTION_DEG,
            REJECTION_TIMEOUT_S,
        )
    )
    node = Node()
    previous_stamp = None
    for event in node:
        if event.type != "INPUT":
            continue
        sample = event.numpy().astype(float)
        if previous_stamp is not None:
            ahrs.set_sample_period(event.stamp - previous_stamp)
        previous_stamp = event.stamp
        ahrs.update(sample[0:3], sample[3:6], sample[6:9])
        # In Fusion's north-west-up convention nose down and counter-clockwise are positive.
        # Here, as in vehicles, roll is positive right side down, pitch nose up, yaw clockwise, in degrees.
        roll, pitch, yaw = imufusion.quaternion_to_euler(ahrs.get_quaternion())
        node.send("attitude", np.array([roll, -pitch, -yaw], np.float32), like=event)


if __name__ == "__main__":
    main()
