"""Runs a round: starts its dataflow, injects the planned faults, and checks the leftovers."""

import os
import random
import resource
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import accounting, mounts, processes, records
from .plan import VISITS, WATCHERS, Fault, Node, Round
from .running import PATIENCE, Running, environment
from .visitors import Visitors
from .watchers import Watchers

# Enough for a dataflow of a round, and few enough that a leak at each restart is noticed.
FEW_DESCRIPTORS = 400
KILLS_BETWEEN_LOOKS = 500
# Segments that a process maps at most: far more than any round needs, and far fewer than kills.
MOST_SEGMENTS = 300
# Sizes of the small disks.
LOG_KILOBYTES = 4
RECORDING_KILOBYTES = 256
# Growth limit of a process after all restarts: memory that its allocator keeps.
GROWTH_BYTES = {"rust": 12_000_000, "python": 48_000_000}
# Block sizes are four an octave, so a sample fills at least four fifths of its block.
BLOCK_ROUNDING = 1.25
# Blocks that watchers may hold, and blocks that wait for reuse or for the unmapping by their last reader.
WATCHERS_BLOCKS, SPARE_BLOCKS = 3 * 16, 16


@dataclass
class Programs:
    """The programs under test."""

    nervure: Path
    rust_node: Path
    python_node: Path


class RoundFailed(Exception):
    """An invariant does not hold."""


def perform(plan: Round, programs: Programs, say: Callable[[str], None]) -> Counter[str]:
    """Runs the round; returns the number of acts by kind.

    Raises:
        RoundFailed: names the violated invariants, with the end of the log.
    """
    with tempfile.TemporaryDirectory(prefix="nervure-soak-") as name:
        folder = Path(name)
        performer = Performer(plan, programs, folder, say)
        try:
            return performer.perform()
        except RoundFailed as failure:
            raise RoundFailed(f"{failure}\n--- end of the log\n{performer.running.log()}") from failure
        finally:
            performer.watchers.kill()
            performer.visitors.kill()
            performer.running.close()
            for disk in performer.disks:
                mounts.unmount(disk)
            for left in processes.reap_orphans(0):
                os.kill(left, signal.SIGKILL)
            processes.wait_until(PATIENCE, lambda: not processes.reap_orphans(0))


class Performer:
    """Executes a round."""

    def __init__(self, plan: Round, programs: Programs, folder: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.programs = programs
        self.say = say
        self.done: Counter[str] = Counter()
        self.records, self.temporary = folder / "records", folder / "temporary"
        self.logs, self.small_disk = folder / "logs", folder / "small"
        for path in (self.records, self.temporary, self.logs, self.small_disk):
            path.mkdir()
        self.disks: list[Path] = []
        # The last value set for each node's parameter.
        self.params: dict[str, int] = {}
        if plan.surroundings == "full disk":
            self.mount(self.logs, LOG_KILOBYTES)
        if any(fault.kind == "record on a small disk" for fault in plan.faults):
            self.mount(self.small_disk, RECORDING_KILOBYTES)
        file = plan.write(folder, programs.rust_node, programs.python_node)
        command = [str(programs.nervure), "run", "--json", "--grace", "5s", str(file)]
        command += ["--clock", plan.clock] if plan.clock else []
        surroundings = environment(folder, self.records, self.temporary)
        self.running = Running(self.surround(command), surroundings, folder)
        self.watchers = Watchers(programs.nervure, surroundings, folder, self.small_disk)
        self.visitors = Visitors(programs.nervure, programs.rust_node, surroundings, folder)

    def program_of(self, node: str) -> Path:
        programs = self.programs
        return programs.rust_node if self.plan.node(node).language == "rust" else programs.python_node

    def mount(self, folder: Path, kilobytes: int) -> None:
        mounts.mount_small_disk(folder, kilobytes)
        self.disks.append(folder)

    def surround(self, command: list[str]) -> list[str]:
        if self.plan.surroundings == "few descriptors":
            return ["sh", "-c", f'ulimit -n {FEW_DESCRIPTORS} && exec "$@"', "sh", *command]
        return command

    def perform(self) -> Counter[str]:
        running = self.running
        if not running.wait_for(lambda: running.is_ready or running.process.poll() is not None):
            raise RoundFailed("it is not ready")
        if not running.is_ready:
            raise RoundFailed(f"it ended with {running.process.wait()} before it was ready")
        assert running.keeper
        self.wait_for_first_starts()
        base, memory = None, {}
        if self.plan.ending != "natural":
            self.check_progress()
            base = self.open_things()
            memory = self.memory()
        for fault in self.plan.faults:
            time.sleep(fault.after)
            self.inject(fault)
        self.kill_many(base, memory)
        self.check_recovery(base, memory)
        code = self.end()
        self.check_leftovers()
        self.check_account(code)
        return self.done

    # -- faults

    def inject(self, fault: Fault) -> None:
        if fault.kind in (*WATCHERS, "kill watchers", "stop watchers"):
            self.inject_watcher(fault)
            return
        if fault.kind == "param":
            self.set_param(fault)
            return
        if fault.kind in VISITS:
            self.inject_visit(fault)
            return
        node = self.running.nodes.get(fault.node)
        if not node or not self.running.is_alive(fault.node):
            self.say(f"{fault}: not there")
            return
        incarnation = self.running.incarnations[fault.node]
        self.say(f"{fault} (incarnation {incarnation})")
        self.done[fault.kind] += 1
        if fault.kind == "kill":
            self.running.signal(node, signal.SIGKILL)
            return
        self.running.signal(node, signal.SIGSTOP)
        time.sleep(fault.seconds)
        last = signal.SIGKILL if fault.kind == "kill while stopped" else signal.SIGCONT
        self.running.signal(node, last)

    def inject_watcher(self, fault: Fault) -> None:
        assert self.running.keeper
        self.say(f"{fault}")
        if fault.kind == "kill watchers":
            self.done["kill watcher"] += self.watchers.kill()
            return
        self.done[fault.kind] += 1
        if fault.kind == "stop watchers":
            self.watchers.pause(fault.seconds)
        else:
            self.watchers.start(fault.kind, fault.node, self.running.keeper.pid)

    def inject_visit(self, fault: Fault) -> None:
        assert self.running.keeper
        keeper = self.running.keeper.pid
        self.say(f"{fault}")
        if fault.kind == "kill visitors":
            self.done["kill visitor"] += self.visitors.kill()
        elif fault.kind == "join":
            self.done["join"] += self.visitors.join(self.plan.node(fault.node), keeper, fault.value)
        elif fault.kind == "attach":
            self.done["attach"] += self.visitors.attach(fault.node, keeper)
        else:
            self.replace(fault, keeper)

    def replace(self, fault: Fault, keeper: int) -> None:
        """`nervure node replace` must refuse a program that is no node, and restart the node's own."""
        in_vain = fault.kind == "replace in vain"
        program = Path("/bin/false") if in_vain else self.program_of(fault.node)
        done = self.visitors.replace(fault.node, program, keeper)
        if done.returncode == (2 if in_vain else 0):
            self.done[fault.kind] += 1
        elif not self.may_refuse(fault.node):
            raise RoundFailed(f"`nervure node replace` ended with {done.returncode}: {done.stderr}")

    def may_refuse(self, node: str) -> bool:
        """Whether `nervure node replace` may refuse now: a program is attached, or the node has ended."""
        running = self.running
        is_attached = node in self.visitors.running
        return is_attached or running.wait_for(lambda: running.is_finished or running.has_ended(node), 1.0)

    def set_param(self, fault: Fault) -> None:
        assert self.running.keeper
        self.say(f"{fault} to {fault.value}")
        keeper = str(self.running.keeper.pid)
        done = self.command("param", "set", fault.node, "number", str(fault.value), "--dataflow", keeper)
        if done.returncode == 0:
            self.done["param"] += 1
            self.params[fault.node] = fault.value
        elif not self.running.wait_for(
            lambda: self.running.is_finished or not self.running.reader.is_alive()
        ):
            raise RoundFailed(f"`nervure param set` ended with {done.returncode}: {done.stderr}")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.watchers.nervure), *arguments],
            env=self.watchers.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def kill_many(self, base: dict[str, Counter[str]] | None, memory: dict[str, int]) -> None:
        chance = random.Random(self.plan.name)
        while self.done["kill"] < self.plan.kills:
            node = chance.choice(self.plan.targets)
            if not self.running.wait_for(partial(self.running.is_alive, node)):
                raise RoundFailed(f"{node} was not started again")
            # A random delay, so that kills hit every phase from the first instruction on.
            time.sleep(chance.expovariate(100))
            self.done["kill"] += self.running.signal(self.running.nodes[node], signal.SIGKILL)
            if self.done["kill"] % KILLS_BETWEEN_LOOKS == 0:
                self.say(f"{self.done['kill']} kills")
                self.check_recovery(base, memory)

    # -- while it runs

    def check_recovery(self, base: dict[str, Counter[str]] | None, memory: dict[str, int]) -> None:
        """All nodes and edges go on, and killed processes leave nothing behind."""
        if self.plan.ending == "natural":
            return
        self.wait_for_restarts()
        self.check_progress()
        self.done["kill watcher"] += self.watchers.kill()
        self.done["kill visitor"] += self.visitors.kill()
        self.wait_for_restarts()
        # Its sources may have been killed for good.
        if base is not None and not self.running.is_finished:
            self.check_open_things(base)
            self.check_memory(memory)
        self.check_params()

    def wait_for_first_starts(self) -> None:
        """Waits for the planned failing starts and hangs to be over."""
        running = self.running
        last = {
            node.id: node.orders.get("failing_starts", 0) + ("hang_after" in node.orders)
            for node in self.plan.nodes
        }
        if not running.wait_for(lambda: all(running.incarnations.get(id, 0) >= last[id] for id in last)):
            raise RoundFailed(f"no start after those that failed: {running.incarnations}")

    def wait_for_restarts(self) -> None:
        """Waits until every node runs, or has ended for good."""
        running = self.running

        def missing() -> list[str]:
            ids = [node.id for node in self.plan.nodes if not node.is_dynamic]
            return [id for id in ids if not running.is_alive(id) and not running.has_ended(id)]

        if not running.wait_for(lambda: not missing()):
            raise RoundFailed(f"{missing()} were not started again")

    def check_progress(self) -> None:
        """Every edge whose two ends live, and whose producer has something to send, must go on."""
        running = self.running
        before = {input: edge["received"] for input, edge in running.edges.items()}

        def standing() -> list[str]:
            return [
                input
                for input in self.flowing()
                if running.edges.get(input, {}).get("received", 0) <= before.get(input, 0)
            ]

        reports = running.edge_reports
        if not running.wait_for(
            lambda: running.is_finished or (running.edge_reports > reports and not standing())
        ):
            raise RoundFailed(f"nothing arrives any more at {standing()}")

    def flowing(self) -> list[str]:
        """Inputs at which samples must arrive in the present state."""
        feeding = {node.id for node in self.plan.nodes if node.is_source and self.running.is_alive(node.id)}
        alive = [node for node in self.plan.nodes if self.running.is_alive(node.id)]
        return flowing_inputs(alive, feeding)

    def open_things(self) -> dict[str, Counter[str]]:
        """Descriptors and mappings of every process, once they no longer change."""
        last: list[dict[str, Counter[str]]] = []

        def is_steady() -> bool:
            last.append(self.look())
            # `run`, the keeper, and the nodes.
            is_complete = len(last[-1]) == 2 + sum(not node.is_dynamic for node in self.plan.nodes)
            return is_complete and len(last) >= 5 and all(these == last[-1] for these in last[-5:])

        if not processes.wait_until(PATIENCE, is_steady):
            raise RoundFailed(f"descriptors and mappings do not settle: {last[-2:]}")
        # The keeper maps the counters of a node with a health check at its first check.
        watched = sum("health_check_timeout" in node.keys for node in self.plan.nodes)
        last[-1]["keeper"]["/memfd:nervure-counters (deleted)"] += watched
        # `run` keeps the counters of a joined node after it has left, for the account.
        joining = sum(node.is_dynamic for node in self.plan.nodes)
        last[-1]["run"]["/memfd:nervure-counters (deleted)"] += joining
        python = {node.id for node in self.plan.nodes if node.language == "python"}
        for name, things in last[-1].items():
            if name.split(".")[0] in python:
                # The socket pair for sleeping is made at the first sleep, which a fast producer delays.
                things["socket:"] += 2
        return last[-1]

    def pids(self) -> dict[str, int]:
        """Process ids of `run`, the keeper, and each node by its id and incarnation."""
        running = self.running
        assert running.keeper
        pids = {"run": running.run.pid, "keeper": running.keeper.pid}
        with running.changed:
            for node in self.plan.nodes:
                if running.is_alive(node.id):
                    pids[f"{node.id}.{running.incarnations[node.id]}"] = running.nodes[node.id].pid
        return pids

    def look(self) -> dict[str, Counter[str]]:
        things = {}
        for name, pid in self.pids().items():
            try:
                things[name] = processes.descriptors(pid) + processes.mappings(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            # The number of mapped segments varies with the samples held.
            segments = things[name].pop("/memfd:nervure-segment (deleted)", 0)
            if segments > MOST_SEGMENTS:
                things[name]["segments"] = segments
        return things

    def check_open_things(self, base: dict[str, Counter[str]]) -> None:
        """No surviving process has more descriptors or mappings than at the start."""

        def more() -> dict[str, Counter[str]]:
            now = self.look()
            return {name: now[name] - base[name] for name in base if name in now and now[name] - base[name]}

        if not processes.wait_until(PATIENCE, lambda: not more()):
            raise RoundFailed(f"more than at the start: {more()}")

    def memory(self) -> dict[str, int]:
        """Private bytes of each process."""
        return {
            name: size for name, pid in self.pids().items() if (size := processes.own_bytes(pid)) is not None
        }

    def check_memory(self, base: dict[str, int]) -> None:
        """No surviving process has grown beyond its limit, and the segments take no more than the samples of
        queues and holders may need.
        """

        def more() -> list[str]:
            languages = {node.id: node.language for node in self.plan.nodes}
            most = {name: GROWTH_BYTES[languages.get(name.split(".")[0], "rust")] for name in base}
            shared = processes.segment_bytes(self.pids().values())
            return [
                *grown(base, self.memory(), most),
                *too_much_shared(shared, most_segment_bytes(self.plan)),
            ]

        if not processes.wait_until(PATIENCE, lambda: not more()):
            raise RoundFailed(f"memory is not back at its base: {more()}")

    def check_params(self) -> None:
        """Each running node has the last value that was set, also after a restart."""

        def wrong() -> list[str]:
            found = []
            for node, value in self.params.items():
                if self.running.is_alive(node):
                    value_of_node = records.last_param(self.records, node, self.running.incarnations[node])
                    if value_of_node != value:
                        found.append(f"{node} has the value {value_of_node}, {value} was set")
            return found

        if not self.running.wait_for(lambda: self.running.is_finished or not wrong()):
            raise RoundFailed(f"parameters: {wrong()}")

    # -- the end

    def end(self) -> int:
        running, ending = self.running, self.plan.ending
        assert running.keeper
        self.say(f"end: {ending}")
        self.done[ending] += 1
        if self.plan.last_watcher:
            self.watchers.start(self.plan.last_watcher, "*", running.keeper.pid)
        if ending == "kill run":
            running.run.signal(signal.SIGKILL)
        elif ending == "kill keeper":
            running.keeper.signal(signal.SIGKILL)
        elif ending in ("stop", "stop twice"):
            running.run.signal(signal.SIGINT)
            if ending == "stop twice":
                # A second signal without a pause would merge with the first.
                time.sleep(0.1)
                running.run.signal(signal.SIGINT)
        elif ending == "stop command":
            self.stop_by_command(running.keeper.pid)
        try:
            while ending == "natural" and running.process.poll() is None and self.flows():
                pass
            code = running.wait_for_end()
        except subprocess.TimeoutExpired:
            raise RoundFailed(f"it does not end ({ending})") from None
        problems = self.watchers.wait() + self.watchers.unreadable() + self.visitors.wait()
        self.done["full disk of a recording"] += self.watchers.full_disks()
        if problems:
            raise RoundFailed(f"watchers that do not end, or recordings that cannot be read: {problems}")
        return code

    def flows(self) -> bool:
        """Whether anything arrives anywhere within a while: small budgets and holders make a round slow."""
        running = self.running

        def received() -> int:
            return sum(edge["received"] for edge in running.edges.values())

        before = received()
        return (
            running.wait_for(lambda: running.is_finished or received() > before) and not running.is_finished
        )

    def stop_by_command(self, keeper: int) -> None:
        stopped = self.command("stop", "--dataflow", str(keeper))
        if stopped.returncode != 0 and not self.running.wait_for(lambda: self.running.is_finished):
            raise RoundFailed(f"`nervure stop` ended with {stopped.returncode}: {stopped.stderr}")

    def check_leftovers(self) -> None:
        if not processes.wait_until(PATIENCE, lambda: not processes.reap_orphans(self.running.process.pid)):
            left = processes.reap_orphans(self.running.process.pid)
            raise RoundFailed(f"processes are left: {[processes.command_line(pid) for pid in left]}")
        files = [str(path) for path in self.temporary.iterdir()]
        # The lab's files belong to iceoryx2, which it measures.
        shared = [path for path in Path("/dev/shm").iterdir() if not path.name.startswith("nervure_lab_")]
        files += [str(path) for path in shared if "nervure" in path.name]
        if files:
            raise RoundFailed(f"files are left: {files}")

    def check_account(self, code: int) -> None:
        running = self.running
        written = records.read(self.records)
        problems = accounting.check_samples(self.plan, written)
        summary = running.summary
        expected = {"kill run": {-signal.SIGKILL}, "kill keeper": {1}}.get(self.plan.ending)
        if expected is not None and running.is_finished and summary:
            # It ended by itself, before or during the kill.
            expected |= self.expected_codes()
        if expected is None:
            if summary is None:
                raise RoundFailed(f"it ended with {code}, and without a summary")
            problems += accounting.check_counters(self.plan, running, written)
            problems += accounting.check_last_words(self.plan, running, written)
            expected = self.expected_codes()
        if code not in expected:
            problems.append(f"it ended with {code}, not with one of {expected}")
        if problems:
            raise RoundFailed("\n".join(problems))
        if self.plan.surroundings:
            self.done[self.plan.surroundings] += (
                self.plan.surroundings != "full disk" or self.has_reported_full_disk()
            )
        self.done["samples"] += sum(
            len(process) for processes in written.received.values() for process in processes.values()
        )

    def has_reported_full_disk(self) -> bool:
        return any("cannot be written (" in message.get("text", "") for message in self.running.messages)

    def expected_codes(self) -> set[int]:
        running = self.running
        failed = any(
            ends[-1]["failed"] and not ends[-1]["restarts"] for ends in running.ends.values() if ends
        )
        lost = any(edge["queue"]["policy"] == "block" and edge["lost"] > 0 for edge in running.edges.values())
        code = 3 if failed or lost else 0
        return {code, 130} if self.plan.ending == "stop twice" else {code}


def flowing_inputs(alive: list[Node], feeding: set[str]) -> list[str]:
    """Inputs of these nodes that samples of `feeding` reach, directly or over relays and loops."""
    inputs: list[str] = []
    while True:
        before = len(inputs)
        for node in alive:
            for name, source in node.edges.items():
                if source["source"].split("/")[0] in feeding and f"{node.id}/{name}" not in inputs:
                    inputs.append(f"{node.id}/{name}")
                    if name not in node.orders.get("silent", []):
                        feeding = feeding | {node.id}
        if len(inputs) == before:
            return inputs


def grown(base: dict[str, int], now: dict[str, int], most: dict[str, int]) -> list[str]:
    """Processes that have grown by more than a limit since the start."""
    return [
        f"{name} has {now[name]} bytes of its own, {base[name]} at the start"
        for name in base
        if name in now and now[name] > base[name] + most[name]
    ]


def most_segment_bytes(plan: Round) -> int:
    """Upper bound of the memory of samples held at a time, each in a block of its own."""
    most = 0
    for node in plan.nodes:
        largest = sum(size for size in node.orders.get("bytes", [])) * BLOCK_ROUNDING
        for output, keys in node.outputs.items():
            held = keys.get("history", 0) + SPARE_BLOCKS + (WATCHERS_BLOCKS if plan.is_watched else 0)
            for consumer in plan.nodes:
                for source in consumer.edges.values():
                    if source["source"] == f"{node.id}/{output}":
                        held += source.get("max_held", source.get("queue_size", 10) + 8)
            most += int(held * largest)
    return most


def too_much_shared(shared: dict[int, int], most: int) -> list[str]:
    """Whether the segments of a dataflow, each counted once, exceed a limit."""
    total = sum(shared.values())
    return (
        [f"{len(shared)} segments take {total} bytes, at most {most} can be in use"] if total > most else []
    )


def raise_limits() -> None:
    """Raises the limit of descriptors: the campaign holds pidfds of many processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
