"""One fault a run: `python -m soak.injection --help`.

Two small dataflows run repeatedly. One starts, sends, restarts a node and ends by itself; the other sends
until it is stopped, after an observer has received samples. In each run the program `inject` of
`crates/cli/tests/inject` lets system calls of one process fail or cuts them short: the n-th, for every n, or
several from the n-th on. In other runs one process is killed: by `inject` before its n-th system call, or by
itself after its n-th store to shared memory or control message (`crates/shm/src/kill_points.rs`).
"""

import argparse
import copy
import errno
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import accounting, processes, records
from .plan import Node, Round, fresh_seed
from .running import Running, environment

REPOSITORY = Path(__file__).parents[2]

# Faults of each system call. With `no-descriptors` a message loses the descriptors that it carries; `x10`
# stands for ten calls in a row, as in a lasting shortage. A `delay` before a call simulates a machine under
# load, and may only prolong the run.
ACTIONS: dict[str, list[str]] = {
    # Any system call: the process is killed before it.
    "all": ["kill"],
    # A store to shared memory, or a control message: the process is killed after it.
    "point": ["kill"],
    "openat": ["EMFILE", "EMFILEx10", "ENOMEM", "EINTR"],
    "memfd_create": ["EMFILE", "ENOMEM", "ENOMEMx10"],
    "ftruncate": ["ENOSPC", "EINTR"],
    "fallocate": ["ENOSPC", "EINTR"],
    "mmap": ["ENOMEM", "ENOMEMx10", "delay"],
    "eventfd2": ["EMFILE", "ENOMEM"],
    "socket": ["EMFILE", "ENOMEM"],
    "socketpair": ["EMFILE", "ENOMEM"],
    "connect": ["EINTR", "EAGAIN"],
    "accept4": ["EMFILE", "EMFILEx10", "ENOMEM", "EINTR", "EAGAIN", "delay"],
    "recvmsg": ["no-descriptors", "no-descriptorsx10", "ENOMEM", "EINTR", "EAGAIN", "delay"],
    "recvfrom": ["EINTR"],
    "sendmsg": ["ENOMEM", "EINTR", "EAGAIN", "EAGAINx10", "delay"],
    "pidfd_open": ["EMFILE", "ENOMEM"],
    "pipe2": ["EMFILE"],
    "dup": ["EMFILE"],
    "fcntl": ["EMFILE"],
    "clone": ["EAGAIN", "ENOMEM", "delay"],
    "clone3": ["EAGAIN", "ENOMEM", "delay"],
    "vfork": ["EAGAIN", "ENOMEM"],
    "execve": ["ENOMEM", "EMFILE", "delay"],
    "write": ["ENOSPC", "ENOSPCx10", "EINTR", "EAGAIN", "short", "delay"],
    "read": ["EINTR", "EAGAIN", "ENOMEM", "short"],
    "mkdir": ["ENOSPC"],
    "renameat": ["ENOSPC"],
    "unlink": ["ENOSPC"],
    "epoll_create1": ["EMFILE", "ENOMEM"],
    "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "epoll_wait": ["EINTR", "delay"],
    "epoll_pwait2": ["EINTR"],
    "poll": ["EINTR", "ENOMEM", "delay"],
    "ppoll": ["EINTR", "ENOMEM", "delay"],
    "futex": ["EINTR", "EAGAIN", "delay"],
}
# A run takes a second; a run that exceeds this hangs.
PATIENCE_SECONDS = 20
# The exit code of `inject` on a kernel without the features that it needs.
UNSUPPORTED = 77
PART_CASES = 50
# Longer than the whole life of an undelayed node.
DELAY_MILLIS = 400
# Samples that the source sends, and after how many the sink fails for the first time.
SAMPLES, FAILS_AFTER = 30, 8


@dataclass(frozen=True)
class Known:
    """Cases that are known to fail, and why: patterns of role, call and action."""

    role: str
    call: str
    action: str
    why: str

    def covers(self, case: "Case") -> bool:
        pairs = [(self.role, case.role), (self.call, case.call), (self.action, case.action)]
        return all(re.fullmatch(pattern, value) for pattern, value in pairs)


NODES = r"(source|relay|sink)\.\d"
KNOWN = [
    Known(
        NODES,
        "recvmsg",
        "EAGAIN",
        "a packet that is there and is not received is taken for one that was never sent, and cuts its edge",
    ),
]


@dataclass(frozen=True)
class Case:
    """A run with one fault."""

    scenario: str
    role: str
    call: str
    action: str
    nth: int

    def __str__(self) -> str:
        return f"{self.scenario} {self.role} {self.call} {self.action} {self.nth}"

    def arguments(self) -> list[str]:
        """Arguments of `inject`."""
        if self.call == "point":
            return []
        action, _, times = self.action.partition("x")
        if action == "delay":
            action = f"delay:{DELAY_MILLIS}"
        elif action in errno.errorcode.values():
            action = f"errno:{getattr(errno, action)}"
        arguments = ["--role", self.role, "--call", self.call, "--action", action, "--nth", str(self.nth)]
        return [*arguments, "--times", times or "1"]

    @property
    def is_kill(self) -> bool:
        """Whether the process is killed, instead of receiving an error."""
        return self.action == "kill"

    def kill_point(self, path: Path) -> str:
        """The value of the environment variable of `crates/shm/src/kill_points.rs`."""
        argument = {"run": "run", "keeper": "__keeper"}.get(self.role, "*")
        number = self.role.partition(".")[2] or "0"
        return f"{argument}:{number}:{self.nth}:{path}"

    def known(self) -> Known | None:
        return next((known for known in KNOWN if known.covers(self)), None)


@dataclass
class Outcome:
    """Outcome of a run."""

    problems: list[str]
    calls: dict[str, dict[str, int]]
    was_done: bool
    log: str
    code: int | None = None
    points: int = 0

    def read_point(self, file: Path) -> None:
        """Reads the file of a process with a kill point: "killed", or its number of kill points."""
        text = file.read_text() if file.exists() else ""
        self.was_done = text == "killed"
        self.points = int(text) if text.isdigit() else 0


def scenario(ending: str) -> Round:
    """Two kinds of queues, samples of all sizes, a relay, and a sink that fails once and is started again.

    With the ending "stop" the source sends for as long as it runs.
    """
    again = {"restart_policy": "on-failure", "restart_delay": "1ms", "max_restart_delay": "1ms"}

    def reads(*topics: str, policy: str) -> dict[str, dict[str, Any]]:
        # A blocked producer lives until its consumer is back. The other queue has room for all samples, so a
        # drop shows another shortage.
        size = 4 if policy == "block" else 100
        return {
            f"{policy}_{topic.split('/')[0]}": {"source": topic, "queue_policy": policy, "queue_size": size}
            for topic in topics
        }

    nodes = [
        Node(
            "source",
            outputs={"out": {}},
            orders={"bytes": [64, 5_000, 70_000], "pause_micros": 1_000}
            | ({"count": SAMPLES} if ending == "natural" else {}),
        ),
        Node(
            "relay",
            # Two edges from one process: they share a socket.
            reads("source/out", policy="drop_oldest")
            | {"again": {"source": "source/out", "queue_policy": "drop_oldest", "queue_size": 100}},
            {"out": {}},
            orders={"bytes": [200]},
        ),
        Node(
            "sink",
            reads("source/out", "relay/out", policy="block"),
            keys=again,
            orders={"bytes": [64], "fail_after": FAILS_AFTER},
        ),
    ]
    for node in nodes:
        node.keys = node.keys | {"env": {"INJECT_ROLE": node.id}}
    watcher = "observe" if ending == "stop" else ""
    return Round("injection", nodes, [], ending, last_watcher=watcher)


# The name of each dataflow, and how it ends.
SCENARIOS = {"finishes": scenario("natural"), "stopped": scenario("stop")}


class Campaign:
    """Runs of the scenarios."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs

    def count_calls(self, name: str, without_fault: Outcome) -> dict[str, dict[str, int]]:
        """The number of system calls of each kind, and of kill points, by process."""
        counts = without_fault.calls
        for role, calls in self.perform(Case(name, "none", "all", "kill", 1)).calls.items():
            points = counts.setdefault(role, {})
            points["all"] = calls.get("all", 0)
            if not role.startswith("starting."):
                points["point"] = self.perform(Case(name, role, "point", "kill", 0)).points
        return counts

    def plan_for(self, case: Case, kill_point: Path) -> Round:
        """The dataflow, in which one node may have a kill point."""
        plan = copy.deepcopy(SCENARIOS[case.scenario])
        for node in plan.nodes:
            if case.call == "point" and case.role.partition(".")[0] == node.id:
                node.keys["env"]["NERVURE_KILL_POINT"] = case.kill_point(kill_point)
        return plan

    def perform(self, case: Case) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="nervure-inject-") as name:
            folder = Path(name)
            paths = {name: folder / name for name in ("records", "temporary", "runtime", "logs")}
            for path in paths.values():
                path.mkdir(mode=0o700)
            report_path = folder / "report"
            kill_point = folder / "kill-point"
            plan = self.plan_for(case, kill_point)
            file = plan.write(folder, self.programs / "examples" / "soak_node", Path())
            calls = "all" if case.call == "all" else ",".join(ACTIONS.keys() - {"all", "point"})
            command = [str(self.programs / "examples" / "inject"), "--report", str(report_path)]
            command += ["--calls", calls]
            # The nodes' records are the reference for the counters, so no fault may hit them.
            command += ["--except", str(paths["records"])]
            command += ["--patience-seconds", str(PATIENCE_SECONDS)]
            command += case.arguments()
            command += ["--", str(self.programs / "nervure"), "run", "--json", "--grace", "5s", str(file)]
            surroundings = environment(folder, paths["records"], paths["temporary"])
            surroundings |= {"XDG_RUNTIME_DIR": str(paths["runtime"])}
            if case.call == "point" and case.role in ("run", "keeper"):
                surroundings["NERVURE_KILL_POINT"] = case.kill_point(kill_point)
            running = Running(command, surroundings, folder)
            try:
                if plan.ending == "stop":
                    self.stop(running, surroundings, by_command=case.nth % 2 == 0)
                code = running.wait_for_end()
            finally:
                running.close()
            if not report_path.exists():
                return Outcome([f"`inject` ended with {code}"], {}, False, running.log(), code)
            result = json.loads(report_path.read_text())
            log = f"{running.log()}\nacted on {result['acted_on']}\n{edges(running)}"
            log += f"\n{(running.summary or {}).get('failed_edges')}"
            if (commands := folder / "commands").exists():
                log += f"\n{commands.read_text()[-2000:]}"
            if result["hangs"]:
                return Outcome(["it hangs", *result["left"]], result["calls"], True, log)
            problems = [f"a process is left: {left}" for left in result["left"]]
            for path in (paths["temporary"], paths["runtime"]):
                problems += [f"a file is left: {left}" for left in path.iterdir()]
            problems += judge(plan, running, records.read(paths["records"]), code, case)
            outcome = Outcome(problems, result["calls"], bool(result["acted_on"]), log)
            if case.call == "point":
                outcome.read_point(kill_point.with_name(f"kill-point.{case.role.partition('.')[2] or 0}"))
            return outcome

    def stop(self, running: Running, surroundings: dict[str, str], *, by_command: bool) -> None:
        """Stops the dataflow after an observer has received samples, or has ended for another reason."""
        folder = running.folder / "records"
        processes.wait_until(
            PATIENCE_SECONDS / 2,
            lambda: (
                running.process.poll() is not None
                or any(file.stat().st_size for file in folder.glob("sink.[1-9]"))
            ),
        )
        # Not from the output of `run`: the fault may prevent it.
        run = processes.children(running.process.pid)
        keeper = [child for process in run for child in processes.children(process)]
        commands = [["topic", "echo", "--json", "--count", "5", "source/out"]]
        if by_command:
            commands.append(["stop"])
        for command in commands if keeper else []:
            # Both commands fail if the fault ends the keeper; `run` then ends by itself.
            command = [str(self.programs / "nervure"), *command, "--dataflow", str(keeper[0])]
            with (running.folder / "commands").open("ab") as output:
                subprocess.run(command, env=surroundings, stdout=output, stderr=output, check=False)
        if not by_command:
            for pid in run:
                processes.Process(pid).signal(signal.SIGINT)


def edges(running: Running) -> str:
    """The counts of every edge."""
    return "\n".join(
        f"{input}: "
        + ", ".join(f"{key} {value}" for key, value in edge.items() if isinstance(value, int) and value)
        for input, edge in running.edges.items()
    )


def judge(plan: Round, running: Running, written: records.Records, code: int, case: Case) -> list[str]:
    """Returns the violated invariants."""
    problems = accounting.check_samples(plan, written)
    stderr = running.stderr_path.read_text(errors="replace")
    log = running.log()
    if "panicked at" in log:
        problems.append("something panicked")
    has_failed = {id for id, ends in running.ends.items() if ends[-1]["failed"]}
    if running.summary is not None and all(running.ends[node.id] for node in plan.nodes):
        problems += accounting.check_counters(plan, running, written)
        problems += accounting.check_last_words(plan, running, written)
    missing = missing_samples(plan, running, written)
    if code == 0:
        problems += [f"it ended with 0, and {id} failed" for id in has_failed]
        problems += [f"it ended with 0, and {text}" for text in missing]
        problems += [
            f"it ended with 0, and what {edge['input']} lost is not known" for edge in unknown(running)
        ]
        if running.summary is None:
            problems.append("it ended with 0, and without a summary")
    elif code == 3:
        # A killed process may have used the sample that it held.
        lost = any(edge["lost"] for edge in block_edges(running))
        failed_edges = running.summary and running.summary["failed_edges"]
        if not has_failed and not missing and not lost and not failed_edges and not unknown(running):
            problems.append("it ended with 3, and nothing failed and nothing is missing")
        if running.summary is None:
            problems.append("it ended with 3, and without a summary")
    elif code == 1:
        if case.role == "none" or re.fullmatch(NODES, case.role):
            problems.append("it ended with 1, and the fault was none of run or keeper")
        # The fault may be a failing write to stderr.
        is_silent = case.role == "run" and case.call == "write"
        if not is_silent and "error: " not in stderr and "could not be written to stdout" not in stderr:
            problems.append("it ended with 1, and without an error")
    elif not (case.role == "run" and is_end_of_run(code, stderr)):
        problems.append(f"it ended with {code}")
    return problems


def block_edges(running: Running) -> list[dict[str, Any]]:
    return [edge for edge in running.edges.values() if edge["queue"]["policy"] == "block"]


def unknown(running: Running) -> list[dict[str, Any]]:
    """Edges that may have lost samples, as their counters could not be read."""
    return [edge for edge in block_edges(running) if edge.get("unreadable")]


def is_end_of_run(code: int, stderr: str) -> bool:
    """Whether `run` may end with this code: before it has started anything, or because it was killed."""
    is_unreadable = code == 2 and "error[unreadable-file]" in stderr
    is_not_loaded = code == 127 and "error while loading shared libraries" in stderr
    return is_unreadable or is_not_loaded or code == 128 + signal.SIGKILL


def missing_samples(plan: Round, running: Running, written: records.Records) -> list[str]:
    """Inputs with missing samples, other than drops that their queues have counted."""
    missing = []
    for node in plan.nodes if plan.ending == "natural" else []:
        for name, source in node.edges.items():
            input = f"{node.id}/{name}"
            producer = plan.node(source["source"].split("/")[0])
            expected = sum(count_received(written, f"{producer.id}/{edge}") for edge in producer.edges)
            if producer.is_source:
                expected = SAMPLES
            if source["queue_policy"] != "block":
                # Without a count, all may be lost.
                lost = running.edges.get(input, {}).get("lost", 0)
                expected -= expected if lost is None else lost
            received = count_received(written, input)
            # A killed process may have taken a sample without recording it.
            if received < expected - accounting.crashes(running, node.id):
                missing.append(f"{input} received {received} of {expected}")
    return missing


def count_received(written: records.Records, input: str) -> int:
    return sum(len(process) for process in written.received[input].values())


def cases_of(name: str, calls: dict[str, dict[str, int]]) -> dict[tuple[str, str, str, str], list[Case]]:
    """All cases, by scenario, role, call and action."""
    found = {}
    for role, counts in sorted(calls.items()):
        for call, count in sorted(counts.items()):
            # If the execve of `run` fails, `inject` has nothing to run.
            for action in ACTIONS.get(call, []) if (role, call) != ("run", "execve") else []:
                cases = [Case(name, role, call, action, nth) for nth in range(1, count + 1)]
                found[name, role, call, action] = cases
    return found


def sample(groups: dict[tuple[str, str, str, str], list[Case]], seed: int, most: int) -> Iterator[Case]:
    """Cases of each group in turn; a large group counts once for each part of `PART_CASES`."""
    chance = random.Random(seed)
    parts = [part for cases in groups.values() for part in batched(cases, PART_CASES)]
    left = [chance.sample(part, len(part)) for part in parts]
    chance.shuffle(left)
    while left and most > 0:
        for cases in left[:most]:
            yield cases.pop()
        most -= len(left[:most])
        left = [cases for cases in left if cases]


def batched(cases: list[Case], most: int) -> list[list[Case]]:
    return [cases[at : at + most] for at in range(0, len(cases), most)]


def main() -> int:
    arguments = parse()
    campaign = Campaign(arguments.programs.resolve())
    begin = time.monotonic()
    cases = []
    for name in SCENARIOS:
        without_fault = campaign.perform(Case(name, "none", "none", "kill", 1))
        if without_fault.code == UNSUPPORTED:
            print(f"SKIPPED: faults in system calls: {without_fault.log}")
            return 0
        if without_fault.problems:
            print(f"FAILED: {name}, without any fault\n{without_fault.problems}\n{without_fault.log}")
            return 1
        cases += choose(arguments, name, campaign.count_calls(name, without_fault))
    left_out = [case for case in cases if case.known() and not (arguments.known or arguments.case)]
    for known in KNOWN:
        count = sum(case.known() == known for case in left_out)
        if count:
            print(
                f"LEFT OUT: {count} of {known.role} {known.call} {known.action}, known to fail: {known.why}"
            )
    cases = [case for case in cases if case not in left_out]
    print(f"{len(cases)} runs, each with one fault, with seed {arguments.seed}", flush=True)
    done: Counter[str] = Counter()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for case, outcome in zip(cases, pool.map(campaign.perform, cases), strict=True):
            done[report(case, outcome, arguments.brief)] += 1
    facts = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    print(f"{facts}; {time.monotonic() - begin:.0f} s")
    return bool(done["failed"])


def choose(arguments: argparse.Namespace, name: str, calls: dict[str, dict[str, int]]) -> list[Case]:
    """The cases of a scenario that the arguments select."""
    if arguments.case:
        scenario, role, call, action, nth = arguments.case
        return [Case(scenario, role, call, action, int(nth))] if scenario == name else []
    groups = {
        key: cases
        for key, cases in cases_of(name, calls).items()
        if all(re.fullmatch(pattern, part) for pattern, part in zip(arguments.only, key, strict=False))
    }
    most = arguments.most // len(SCENARIOS) or sum(map(len, groups.values()))
    return list(sample(groups, arguments.seed, most))


def report(case: Case, outcome: Outcome, is_brief: bool) -> str:
    """Prints a failure, and returns the kind of the outcome."""
    if not outcome.problems:
        return "passed" if outcome.was_done else "did not get to the call"
    known = case.known()
    print(f"{'FAILED, as is known' if known else 'FAILED'}: {case}\n" + "\n".join(outcome.problems))
    if not is_brief:
        print(f"--- end of the log\n{outcome.log}")
    print(f"again: make test-faults CASE='{case}'", flush=True)
    return "known to fail" if known else "failed"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak.injection", description="Lets single system calls fail.")
    parser.add_argument("--seed", type=int, default=fresh_seed(), help="decides which cases (default: fresh)")
    parser.add_argument("--most", type=int, default=0, help="how many cases (default all)")
    parts = ("SCENARIO", "ROLE", "CALL", "ACTION", "N")
    parser.add_argument("--case", nargs=5, metavar=parts, help="only this one")
    parser.add_argument("--only", nargs="+", default=[], help="patterns of scenario, role, call and action")
    parser.add_argument("--known", action="store_true", help="with cases that are known to fail")
    parser.add_argument("--jobs", type=int, default=4, help="how many at a time (default 4)")
    parser.add_argument("--brief", action="store_true", help="no logs of failures")
    parser.add_argument(
        "--programs", type=Path, default=REPOSITORY / "target" / "debug", help="where the programs are"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
