"""The fault campaign: dataflows that are made from a seed run while their processes are killed and stopped.

`make soak MINUTES=2 SEED=7`, or `PYTHONPATH=tests python -m soak --help`. What happens when something dies
is described in `docs/guides/faults.md`.

A campaign is a row of rounds. The seed and the number of a round decide everything that is done in it: the
dataflow, what its nodes do, and the list of faults with their times. They do not decide what the kernel
schedules when, so a failure that depends on that may need its round to be run several times.

- `plan.py`: a round, as data
- `running.py`: `nervure run --json`, and its messages
- `faults.py`: what is done to it
- `records.py`: what the nodes themselves wrote down
- `accounting.py`: the records against the counters
- `watchers.py`: observers and recorders
- `processes.py`: processes, their descriptors, mappings and memory
- `mounts.py`: disks that are full soon
- `python_node.py`, and in Rust `crates/cli/tests/nodes/soak_node.rs`: the nodes
"""
