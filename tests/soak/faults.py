"""Runs a round: starts its dataflow, does what was planned, and looks at what is left."""

import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import accounting, processes, records
from .plan import Fault, Round
from .running import PATIENCE, Running, environment
from .watchers import Watchers

# Enough for a dataflow of a round, and so few that a leak of some a restart is noticed.
FEW_DESCRIPTORS = 400
KILLS_BETWEEN_LOOKS = 500
# Segments that a process maps at most: far more than any round needs, and far fewer than kills.
MOST_SEGMENTS = 300


@dataclass
class Programs:
    """What is tested."""

    nervure: Path
    rust_node: Path
    python_node: Path


class RoundFailed(Exception):
    """An invariant does not hold."""


def can_mount() -> bool:
    """Whether a full disk can be had: a small one of our own."""
    command = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", "/tmp"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


def perform(plan: Round, programs: Programs, say: Callable[[str], None]) -> Counter[str]:
    """Runs the round; what was done, by kind.

    Raises:
        RoundFailed: with what does not hold, and the last that was told.
    """
    with tempfile.TemporaryDirectory(prefix="nervure-soak-") as name:
        folder = Path(name)
        performer = Performer(plan, programs, folder, say)
        try:
            return performer.perform()
        except RoundFailed as failure:
            raise RoundFailed(f"{failure}\n--- told last\n{performer.running.log()}") from failure
        finally:
            performer.watchers.kill()
            performer.running.close()
            for left in processes.reap_orphans(0):
                os.kill(left, signal.SIGKILL)
            processes.wait_until(PATIENCE, lambda: not processes.reap_orphans(0))


class Performer:
    """A round that is performed."""

    def __init__(self, plan: Round, programs: Programs, folder: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.say = say
        self.done: Counter[str] = Counter()
        self.records, self.temporary = folder / "records", folder / "temporary"
        self.logs = folder / "logs"
        for path in (self.records, self.temporary, self.logs):
            path.mkdir()
        file = plan.write(folder, programs.rust_node, programs.python_node)
        command = [str(programs.nervure), "run", "--json", "--grace", "5s", str(file)]
        surroundings = environment(folder, self.records, self.temporary)
        self.running = Running(self.surround(command), surroundings, folder)
        self.watchers = Watchers(programs.nervure, surroundings, folder)

    def surround(self, command: list[str]) -> list[str]:
        if self.plan.surroundings == "full disk":
            mount = f"mount -t tmpfs -o size=4k none '{self.logs}' && exec \"$@\""
            return ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh", *command]
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
        base = None
        if self.plan.ending != "natural":
            self.check_progress()
            base = self.open_things()
        for fault in self.plan.faults:
            time.sleep(fault.after)
            self.inject(fault)
        self.kill_many(base)
        self.check_recovery(base)
        code = self.end()
        self.check_leftovers()
        self.check_account(code)
        return self.done

    # -- faults

    def inject(self, fault: Fault) -> None:
        if fault.kind in ("observe", "record", "kill watchers", "stop watchers"):
            self.inject_watcher(fault)
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

    def kill_many(self, base: dict[str, Counter[str]] | None) -> None:
        chance = random.Random(self.plan.name)
        while self.done["kill"] < self.plan.kills:
            node = chance.choice(self.plan.targets)
            if not self.running.wait_for(partial(self.running.is_alive, node)):
                raise RoundFailed(f"{node} was not started again")
            # From its first instruction on.
            time.sleep(chance.expovariate(100))
            self.done["kill"] += self.running.signal(self.running.nodes[node], signal.SIGKILL)
            if self.done["kill"] % KILLS_BETWEEN_LOOKS == 0:
                self.say(f"{self.done['kill']} kills")
                self.check_recovery(base)

    # -- while it runs

    def check_recovery(self, base: dict[str, Counter[str]] | None) -> None:
        """Everything that was there goes on, and nothing is left of what was killed."""
        if self.plan.ending == "natural":
            return
        self.wait_for_restarts()
        self.check_progress()
        self.done["kill watcher"] += self.watchers.kill()
        # Its sources may have been killed for good.
        if base is not None and not self.running.is_finished:
            self.check_open_things(base)

    def wait_for_first_starts(self) -> None:
        """Until those whose first starts fail, or whose first process hangs, have done with that."""
        running = self.running
        last = {
            node.id: node.orders.get("failing_starts", 0) + ("hang_after" in node.orders)
            for node in self.plan.nodes
        }
        if not running.wait_for(lambda: all(running.incarnations.get(id, 0) >= last[id] for id in last)):
            raise RoundFailed(f"no start after those that failed: {running.incarnations}")

    def wait_for_restarts(self) -> None:
        """Until every node runs, or has ended for good."""
        running = self.running

        def missing() -> list[str]:
            ids = [node.id for node in self.plan.nodes]
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

        told = running.edges_told
        if not running.wait_for(
            lambda: running.is_finished or (running.edges_told > told and not standing())
        ):
            raise RoundFailed(f"nothing arrives any more at {standing()}")

    def flowing(self) -> list[str]:
        """Inputs at which samples must arrive, as things are."""
        feeding = {node.id for node in self.plan.nodes if node.is_source and self.running.is_alive(node.id)}
        inputs = []
        # The nodes are in the order of the data.
        for node in self.plan.nodes:
            for name, source in node.inputs.items():
                producer = source["source"].split("/")[0]
                if producer in feeding and self.running.is_alive(node.id):
                    inputs.append(f"{node.id}/{name}")
                    feeding.add(node.id)
        return inputs

    def open_things(self) -> dict[str, Counter[str]]:
        """Descriptors and mappings of every process, once they no longer change."""
        last: list[dict[str, Counter[str]]] = []

        def is_steady() -> bool:
            last.append(self.look())
            # `run`, the keeper, and the nodes.
            is_complete = len(last[-1]) == 2 + len(self.plan.nodes)
            return is_complete and len(last) >= 5 and all(these == last[-1] for these in last[-5:])

        if not processes.wait_until(PATIENCE, is_steady):
            raise RoundFailed(f"descriptors and mappings do not settle: {last[-2:]}")
        # The counters of a node that is watched are mapped when they are first looked at.
        watched = sum("health_check_timeout" in node.keys for node in self.plan.nodes)
        last[-1]["keeper"]["/memfd:nervure-counters (deleted)"] += watched
        return last[-1]

    def look(self) -> dict[str, Counter[str]]:
        running = self.running
        assert running.keeper
        pids = {"run": running.run.pid, "keeper": running.keeper.pid}
        with running.changed:
            for node in self.plan.nodes:
                if running.is_alive(node.id):
                    pids[f"{node.id}.{running.incarnations[node.id]}"] = running.nodes[node.id].pid
        things = {}
        for name, pid in pids.items():
            try:
                things[name] = processes.descriptors(pid) + processes.mappings(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            # How many it takes depends on what is held at the moment.
            segments = things[name].pop("/memfd:nervure-segment (deleted)", 0)
            if segments > MOST_SEGMENTS:
                things[name]["segments"] = segments
        return things

    def check_open_things(self, base: dict[str, Counter[str]]) -> None:
        """The keeper, `run` and every node that was there all along have no more than at the start."""

        def more() -> dict[str, Counter[str]]:
            now = self.look()
            return {name: now[name] - base[name] for name in base if name in now and now[name] - base[name]}

        if not processes.wait_until(PATIENCE, lambda: not more()):
            raise RoundFailed(f"more than at the start: {more()}")

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
                running.run.signal(signal.SIGINT)
        elif ending == "stop command":
            self.stop_by_command(running.keeper.pid)
        try:
            code = running.wait_for_end()
        except subprocess.TimeoutExpired:
            raise RoundFailed(f"it does not end ({ending})") from None
        problems = self.watchers.wait() + self.watchers.unreadable()
        if problems:
            raise RoundFailed(f"watchers that do not end, or recordings that cannot be read: {problems}")
        return code

    def stop_by_command(self, keeper: int) -> None:
        command = [str(self.watchers.nervure), "stop", "--dataflow", str(keeper)]
        stopped = subprocess.run(
            command, env=self.watchers.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        if stopped.returncode != 0 and not self.running.wait_for(lambda: self.running.is_finished):
            raise RoundFailed(f"`nervure stop` ended with {stopped.returncode}: {stopped.stderr}")

    def check_leftovers(self) -> None:
        if not processes.wait_until(PATIENCE, lambda: not processes.reap_orphans(self.running.process.pid)):
            left = processes.reap_orphans(self.running.process.pid)
            raise RoundFailed(f"processes are left: {[processes.command_line(pid) for pid in left]}")
        files = [str(path) for path in self.temporary.iterdir()]
        files += [str(path) for path in Path("/dev/shm").iterdir() if "nervure" in path.name]
        if files:
            raise RoundFailed(f"files are left: {files}")

    def check_account(self, code: int) -> None:
        running = self.running
        written = records.read(self.records)
        problems = accounting.check_samples(self.plan, written)
        summary = running.summary
        expected = {"kill run": {-signal.SIGKILL}, "kill keeper": {1}}.get(self.plan.ending)
        if expected is not None and running.is_finished and summary:
            # It was over by itself, before or while it was killed.
            expected |= self.expected_codes()
        if expected is None:
            if summary is None:
                raise RoundFailed(f"it ended with {code}, and without a summary")
            problems += accounting.check_counters(self.plan, running, written)
            expected = self.expected_codes()
        if code not in expected:
            problems.append(f"it ended with {code}, not with one of {expected}")
        if problems:
            raise RoundFailed("\n".join(problems))
        if self.plan.surroundings:
            self.done[self.plan.surroundings] += (
                self.plan.surroundings != "full disk" or self.has_told_full_disk()
            )
        self.done["samples"] += sum(
            len(process) for processes in written.received.values() for process in processes.values()
        )

    def has_told_full_disk(self) -> bool:
        return any("cannot be written any more" in message.get("text", "") for message in self.running.told)

    def expected_codes(self) -> set[int]:
        running = self.running
        failed = any(
            ends[-1]["failed"] and not ends[-1]["restarts"] for ends in running.ends.values() if ends
        )
        lost = any(edge["queue"]["policy"] == "block" and edge["lost"] > 0 for edge in running.edges.values())
        code = 3 if failed or lost else 0
        return {code, 130} if self.plan.ending == "stop twice" else {code}


def raise_limits() -> None:
    """pidfds of many processes are held."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
