"""The process of composed nodes in Python: ``python -m nervure._host``, which the keeper starts.

It runs each node on a thread of its own, and reports its end to the keeper. The messages are defined in
``nervure_protocol``: ``keeper_to_host.rs`` and ``host_to_keeper.rs``. A node connects to the keeper
itself, over the control socket that comes with the order to start it.
"""
