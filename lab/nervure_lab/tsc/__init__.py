"""The analysis of stored data: the ROS middleware evaluation of 2020, recomputed from its raw data."""
