"""A round of the campaign, decided by the seed and its number."""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POLICIES = ["drop_oldest", "drop_newest", "latest", "block"]
# Sizes of samples in their descriptor, in a slab, and in a memfd of their own.
SIZES = [64, 200, 1_000, 5_000, 70_000, 400_000, 2_000_000]
# The input from the timer, of a node that sends at its ticks.
TICK = "tick"
# Bytes that a source may send a second.
BANDWIDTH = 40_000_000


# Commands that must not affect the dataflow.
WATCHERS = ["observe", "record", "record on a small disk"]
# Acts of programs that the keeper has not started.
VISITS = ["join", "attach", "replace", "replace in vain", "kill visitors"]


def fresh_seed() -> int:
    """A random seed, so that each run tries other cases; the run prints it, to be repeated."""
    return random.SystemRandom().randrange(1, 1_000_000)


@dataclass
class Node:
    """A node of the dataflow."""

    id: str
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    orders: dict[str, Any] = field(default_factory=dict)
    language: str = "rust"
    # It does not start with the dataflow: programs join in its place, and leave.
    is_dynamic: bool = False

    @property
    def is_source(self) -> bool:
        """Whether it sends without samples from other nodes: on its own, or at the ticks of a timer."""
        return "pause_micros" in self.orders or TICK in self.inputs

    @property
    def edges(self) -> dict[str, dict[str, Any]]:
        """Its inputs from other nodes."""
        return {name: source for name, source in self.inputs.items() if name != TICK}

    @property
    def restarts(self) -> bool:
        return self.keys.get("restart_policy", "never") != "never"


@dataclass
class Fault:
    """An act on the dataflow, and the seconds since the previous act."""

    after: float
    kind: str
    node: str = ""
    seconds: float = 0.0
    value: int = 0

    def __str__(self) -> str:
        target = f" {self.node}" if self.node else ""
        duration = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.kind}{target}{duration}"


@dataclass
class Round:
    """A dataflow, its surroundings, and the acts on it."""

    name: str
    nodes: list[Node]
    faults: list[Fault]
    # "natural", "stop", "stop command", "stop twice", "kill run", "kill keeper"
    ending: str
    # "", "full disk", "few descriptors"
    surroundings: str = ""
    # Nodes that are killed at random in addition to the faults, and the number of these kills.
    targets: list[str] = field(default_factory=list)
    kills: int = 0
    # "", "observe" or "record": a watcher at the end of the dataflow, which must end by itself.
    last_watcher: str = ""
    # The node that drives the dataflow's clock: it jumps, stands still and goes at other rates.
    clock: str = ""

    def node(self, id: str) -> Node:
        return next(node for node in self.nodes if node.id == id)

    def write(self, folder: Path, rust_node: Path, python_node: Path) -> Path:
        """The dataflow file. YAML includes JSON."""
        nodes = [dataflow_node(node, rust_node, python_node) for node in self.nodes]
        path = folder / "soak.yml"
        path.write_text(json.dumps({"nodes": nodes}, indent=1))
        return path

    @property
    def is_watched(self) -> bool:
        return bool(self.last_watcher) or any(fault.kind in WATCHERS for fault in self.faults)

    def summary(self) -> str:
        edges = sum(len(node.edges) for node in self.nodes)
        extra = ", its own clock" if self.clock else ""
        extra += f", {self.surroundings}" if self.surroundings else ""
        extra += f", {self.kills} kills" if self.kills else ""
        return f"{len(self.nodes)} nodes, {edges} edges, {len(self.faults)} faults, {self.ending}{extra}"


def dataflow_node(node: Node, rust_node: Path, python_node: Path) -> dict[str, Any]:
    program = rust_node if node.language == "rust" else python_node
    described: dict[str, Any] = {
        "id": node.id,
        "path": "dynamic" if node.is_dynamic else str(program),
        **node.keys,
    }
    if not node.is_dynamic:
        described["args"] = [json.dumps(node.orders), node.id]
    if node.inputs:
        described["inputs"] = node.inputs
    if node.outputs:
        described["outputs"] = node.outputs
    return described


def make_round(seed: int, number: int, with_python: bool, with_mounts: bool) -> Round:
    """The round of that number."""
    chance = random.Random(f"{seed}/{number}")
    ending = chance.choices(
        ["natural", "stop", "stop command", "stop twice", "kill run", "kill keeper"], [25, 25, 15, 5, 15, 15]
    )[0]
    surroundings = chance.choices(["", "full disk", "few descriptors"], [8, 1, 1])[0]
    if surroundings == "full disk" and not with_mounts:
        surroundings = ""
    nodes = make_nodes(chance, ending == "natural", with_python)
    # A loop never ends by itself: each of its nodes waits for the end of the other.
    if ending != "natural" and chance.random() < 0.3:
        add_loop(chance, nodes)
    faults = make_faults(chance, nodes)
    plan = Round(f"{seed}/{number}", nodes, faults, ending, surroundings)
    add_params(chance, plan)
    if chance.random() < 0.4:
        add_watchers(chance, plan, with_mounts)
    if ending != "natural" and chance.random() < 0.25:
        add_clock(chance, plan)
    # Last, so that visitors do not change the random choices for the rest of the round.
    if chance.random() < 0.5:
        add_visitors(chance, plan)
    return plan


def make_kills(seed: int, kills: int) -> Round:
    """Restarting nodes that are killed repeatedly, beside others that must not be affected."""
    again = {"restart_policy": "on-failure", "restart_delay": "1ms", "max_restart_delay": "1ms"}
    last_word = {"on_failure": {"output": "out", "value": "it has failed"}}
    source = {"bytes": [64, 5_000, 70_000], "pause_micros": 2_000}
    relay = {"bytes": [200], "work_micros": 0}

    def reads(**topics: str) -> dict[str, dict[str, Any]]:
        policies = zip(topics.items(), ["block", "drop_oldest", "drop_newest", "latest"], strict=False)
        return {name: {"source": topic, "queue_policy": policy} for (name, topic), policy in policies}

    nodes = [
        Node("steady", outputs={"out": {}}, orders=source, keys=again),
        Node("source", outputs={"out": {}, "map": {"history": 1}}, orders=source, keys=again | last_word),
        Node("relay", reads(a="source/out", b="steady/out"), {"out": {}}, again, relay),
        Node("sink", reads(a="relay/out", b="source/out", c="steady/out"), {}, again, relay),
        Node(
            "holder", reads(a="source/map", b="source/out"), {}, again, relay | {"hold": 5, "hold_millis": 50}
        ),
        Node("witness", reads(a="source/out", b="relay/out", c="steady/out"), {}, again, relay),
    ]
    targets = ["source", "relay", "sink", "holder"]
    return Round(f"{seed}/kills", nodes, [], "stop", targets=targets, kills=kills)


def make_nodes(chance: random.Random, is_finite: bool, with_python: bool) -> list[Node]:
    nodes = [make_source(chance, f"source{index}", is_finite) for index in range(chance.randint(1, 3))]
    for index in range(chance.randint(2, 5)):
        nodes.append(make_consumer(chance, f"node{index}", nodes, is_finite))
    for node in nodes:
        if with_python and chance.random() < 0.15:
            node.language = "python"
    return nodes


def make_source(chance: random.Random, id: str, is_finite: bool) -> Node:
    sizes = chance.sample(SIZES, chance.randint(1, 3))
    mean = sum(sizes) / len(sizes)
    pause = max(chance.choice([500, 2_000, 10_000, 30_000]), int(mean / BANDWIDTH * 1e6))
    orders: dict[str, Any] = {"bytes": sizes, "pause_micros": pause, "burst": chance.choice([1, 1, 1, 8])}
    if is_finite:
        orders["count"] = max(20, int(4e6 / pause))
    outputs = {f"out{index}": make_output(chance) for index in range(chance.choice([1, 1, 2]))}
    return Node(id, outputs=outputs, orders=orders, keys=make_keys(chance, sizes, is_finite))


def make_output(chance: random.Random) -> dict[str, Any]:
    history = chance.choice([0, 0, 0, 1, 5])
    return {"history": history} if history else {}


def make_consumer(chance: random.Random, id: str, producers: list[Node], is_finite: bool) -> Node:
    """A sink, or a relay that others can read from."""
    sizes = [chance.choice(SIZES[:5])]
    topics = [f"{node.id}/{output}" for node in producers for output in node.outputs]
    node = Node(id, keys=make_keys(chance, sizes, is_finite))
    for index, topic in enumerate(chance.sample(topics, min(len(topics), chance.choice([1, 1, 2, 3])))):
        node.inputs[f"in{index}"] = make_input(chance, topic)
    if chance.random() < 0.4:
        node.outputs["out0"] = make_output(chance)
    node.orders = {"bytes": sizes, "work_micros": chance.choice([0, 0, 0, 200, 3_000])}
    if chance.random() < 0.4:
        # Fewer than any input may hold, and for a limited time: otherwise the node would stall.
        room = min(
            source.get("max_held", source.get("queue_size", 10) + 8) for source in node.inputs.values()
        )
        # With little memory the duration of a hold sets the pace of the dataflow.
        millis = 100 if is_finite else 400
        node.orders |= {"hold": min(6, room - 1), "hold_millis": millis}
    if chance.random() < 0.15:
        node.orders["latest"] = ["in0"]
    return node


def make_input(chance: random.Random, topic: str) -> dict[str, Any]:
    policy = chance.choice(POLICIES)
    described: dict[str, Any] = {"source": topic, "queue_policy": policy}
    if policy != "latest":
        described["queue_size"] = chance.choice([1, 2, 10, 100])
    if chance.random() < 0.3:
        described["max_held"] = described.get("queue_size", 1) + chance.choice([1, 2, 20])
    return described


def make_keys(chance: random.Random, sizes: list[int], is_finite: bool) -> dict[str, Any]:
    # A source that always restarts would never finish its fixed number of samples.
    policy = chance.choices(["never", "on-failure", "always"], [2, 7, 0 if is_finite else 1])[0]
    keys: dict[str, Any] = {"restart_policy": policy}
    if policy != "never":
        first = chance.choice([1, 1, 50, 300])
        keys |= {
            "restart_delay": f"{first}ms",
            "max_restart_delay": f"{max(first, chance.choice([1, 500]))}ms",
        }
    if chance.random() < 0.25:
        # Room for a few samples, fewer than the queues and holders could use.
        keys["shared_memory"] = f"{max(2**20, max(sizes) * chance.choice([3, 5]))}B"
    return keys


def add_loop(chance: random.Random, nodes: list[Node]) -> None:
    """Adds an edge from a relay back to its producer, which does not forward its samples."""
    by_id = {node.id: node for node in nodes}
    for last in nodes:
        sources = {source["source"].split("/")[0] for source in last.edges.values()}
        firsts = [by_id[id] for id in sorted(sources) if not by_id[id].is_source]
        if firsts and last.outputs:
            first = chance.choice(firsts)
            back = make_input(chance, f"{last.id}/{next(iter(last.outputs))}")
            if back["queue_policy"] == "block":
                back["queue_policy"] = "drop_oldest"
            first.inputs["back"] = back
            first.orders["silent"] = ["back"]
            # The limit of held samples, as for its other inputs.
            room = back.get("max_held", back.get("queue_size", 10) + 8)
            if "hold" in first.orders:
                first.orders["hold"] = min(first.orders["hold"], room - 1)
            return


def add_params(chance: random.Random, plan: Round) -> None:
    """Parameters that are set between the other faults."""
    for node in plan.nodes:
        if chance.random() < 0.15:
            node.keys["params"] = {"number": {"value": 0, "min": 0, "max": 1000}}
            for _ in range(chance.randint(1, 4)):
                fault = Fault(chance.expovariate(4), "param", node.id, value=chance.randint(1, 1000))
                plan.faults.insert(chance.randint(0, len(plan.faults)), fault)


def add_clock(chance: random.Random, plan: Round) -> None:
    """A node that drives the clock, and one that sends at the ticks of a timer, to a sink."""
    again = {"restart_policy": "always", "restart_delay": "1ms", "max_restart_delay": "1ms"}
    steps = {"every_millis": chance.choice([1, 20, 100]), "steps": 40, "seed": chance.randint(1, 1000)}
    plan.clock = "clock"
    plan.nodes += [
        # Without consumers, so that its load does not depend on others.
        Node(
            "clock", keys=again, outputs={"out": {}}, orders={"clock": steps, **SMALL, "pause_micros": 5_000}
        ),
        Node(
            "ticking",
            {TICK: {"source": f"nervure/timer/hz/{chance.choice([20, 200])}"}},
            {"out": {}},
            {**again, "loop": {"input": TICK, "finish_within": "1ms"}},
            dict(SMALL),
        ),
        Node(
            "ticked",
            {"in0": {"source": "ticking/out", "queue_policy": "block", "expect_every": "50ms"}},
            {},
            {},
            dict(SMALL),
        ),
    ]
    for node in ("clock", "ticking"):
        plan.faults.insert(chance.randint(0, len(plan.faults)), Fault(chance.expovariate(4), "kill", node))


def add_watchers(chance: random.Random, plan: Round, with_mounts: bool) -> None:
    """Observers and recorders between the other faults."""
    kinds = ["observe", "observe", "record", "kill watchers", "stop watchers"]
    kinds += ["record on a small disk"] * with_mounts
    for _ in range(chance.randint(1, 4)):
        kind = chance.choice(kinds)
        seconds = chance.uniform(0.02, 0.8) if kind == "stop watchers" else 0.0
        at = chance.randint(0, len(plan.faults))
        plan.faults.insert(at, Fault(chance.expovariate(4), kind, random_topic(chance, plan), seconds))
    plan.last_watcher = chance.choice(["", "observe", "record"])


def add_visitors(chance: random.Random, plan: Round) -> None:
    """Nodes that programs join and leave, and programs in the place of nodes, between the other faults."""
    visits = []
    for index in range(chance.choice([0, 1, 2])):
        guest = make_consumer(chance, f"guest{index}", plan.nodes, plan.ending == "natural")
        guest.is_dynamic, guest.keys = True, {}
        plan.nodes.append(guest)
        for _ in range(chance.randint(1, 4)):
            # 0: until the end; otherwise milliseconds.
            visits.append(Fault(chance.expovariate(4), "join", guest.id, value=chance.choice([0, 50, 400])))
            if chance.random() < 0.5:
                visits.append(Fault(chance.expovariate(4), "kill", guest.id))
    # With a fixed number of samples, a source must not restart.
    hosts = [node.id for node in plan.nodes if not node.is_dynamic and plan.ending != "natural"]
    for _ in range(chance.randint(1, 4) if hosts else 0):
        kind, host = chance.choice(["attach", "attach", "replace", "replace in vain"]), chance.choice(hosts)
        # The keeper does not clean up the children of an attached program.
        if kind == "attach" and "children" in plan.node(host).orders:
            kind = "replace"
        visits.append(Fault(chance.expovariate(4), kind, host))
        if chance.random() < 0.3:
            visits.append(Fault(chance.expovariate(4), "kill visitors"))
    at = chance.randint(0, len(plan.faults))
    plan.faults[at:at] = visits


# Orders of a node without a task of its own.
SMALL: dict[str, Any] = {"bytes": [200], "work_micros": 0}


def random_topic(chance: random.Random, plan: Round) -> str:
    return chance.choice([f"{node.id}/{output}" for node in plan.nodes for output in node.outputs] + ["*"])


def make_faults(chance: random.Random, nodes: list[Node]) -> list[Fault]:
    faults = []
    for _ in range(chance.randint(3, 12)):
        node = chance.choice(nodes)
        kind = chance.choices(["kill", "stop", "kill while stopped"], [6, 3, 1])[0]
        if kind == "kill" and not node.restarts and chance.random() < 0.7:
            kind = "stop"
        seconds = 0.0 if kind == "kill" else chance.uniform(0.02, 0.8)
        faults.append(Fault(chance.expovariate(4), kind, node.id, seconds))
    for node in nodes:
        if node.outputs and chance.random() < 0.3:
            node.keys["on_failure"] = {"output": next(iter(node.outputs)), "value": "it has failed"}
        dice = chance.random()
        if dice < 0.06 and node.restarts:
            node.orders["failing_starts"] = chance.randint(1, 3)
        elif dice < 0.10 and node.restarts:
            node.orders["hang_after"] = chance.randint(1, 30)
            node.keys["health_check_timeout"] = "1s"
        elif dice < 0.20:
            node.orders["children"] = chance.choice([["group"], ["session"], ["group", "session"]])
    return faults
