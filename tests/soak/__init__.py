"""The fault campaign: dataflows generated from a seed run while their processes are killed and stopped.

`make soak MINUTES=2 SEED=7`, or `PYTHONPATH=tests python -m soak --help`. `docs/guides/faults.md` describes
the expected behaviour after each fault.

A campaign is a series of rounds. The seed and the number of a round determine the dataflow, the behaviour of
its nodes, and the list of faults with their times. They do not determine the kernel's scheduling, so a
failure that depends on it may need several runs of its round.

- `plan.py`: a round, as data
- `running.py`: `nervure run --json`, and its messages
- `faults.py`: execution of a round, with its faults and checks
- `records.py`: the nodes' own records of their samples
- `accounting.py`: the records against the counters
- `watchers.py`: observers and recorders
- `processes.py`: processes, their descriptors, mappings and memory
- `mounts.py`: small disks
- `python_node.py`, and in Rust `crates/cli/tests/nodes/soak_node.rs`: the nodes
"""
