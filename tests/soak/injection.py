"""One fault a run: `python -m soak.injection --help`.

One small dataflow (start, send, restart, stop) runs again and again. In each run one system call of one of
its processes fails or is cut short: the n-th, for every n. The program `inject` of `crates/cli/tests/inject`
does that. In other runs one of the processes is killed: before its n-th system call, or after its n-th store
to shared memory or control message, where the process does it itself (`crates/shm/src/kill_points.rs`).
"""

import argparse
import copy
import errno
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import accounting, records
from .plan import Node, Round
from .running import Running, environment

REPOSITORY = Path(__file__).parents[2]

# What can come of each system call. With `no-descriptors` a message loses the descriptors that it carries.
ACTIONS: dict[str, list[str]] = {
    # Whatever it is: the process is killed before it.
    "all": ["kill"],
    # A store to shared memory, or a control message: the process is killed after it.
    "point": ["kill"],
    "openat": ["EMFILE", "ENOMEM", "EINTR"],
    "memfd_create": ["EMFILE", "ENOMEM"],
    "ftruncate": ["ENOSPC", "EINTR"],
    "fallocate": ["ENOSPC", "EINTR"],
    "mmap": ["ENOMEM"],
    "eventfd2": ["EMFILE", "ENOMEM"],
    "socket": ["EMFILE", "ENOMEM"],
    "socketpair": ["EMFILE", "ENOMEM"],
    "connect": ["EINTR", "EAGAIN"],
    "accept4": ["EMFILE", "ENOMEM", "EINTR", "EAGAIN"],
    "recvmsg": ["no-descriptors", "ENOMEM", "EINTR", "EAGAIN"],
    "recvfrom": ["EINTR"],
    "sendmsg": ["ENOMEM", "EINTR", "EAGAIN"],
    "pidfd_open": ["EMFILE", "ENOMEM"],
    "pipe2": ["EMFILE"],
    "dup": ["EMFILE"],
    "fcntl": ["EMFILE"],
    "clone": ["EAGAIN", "ENOMEM"],
    "clone3": ["EAGAIN", "ENOMEM"],
    "vfork": ["EAGAIN", "ENOMEM"],
    "execve": ["ENOMEM", "EMFILE"],
    "write": ["ENOSPC", "EINTR", "EAGAIN", "short"],
    "read": ["EINTR", "EAGAIN", "ENOMEM", "short"],
    "mkdir": ["ENOSPC"],
    "renameat": ["ENOSPC"],
    "unlink": ["ENOSPC"],
    "epoll_create1": ["EMFILE", "ENOMEM"],
    "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "epoll_wait": ["EINTR"],
    "epoll_pwait2": ["EINTR"],
    "poll": ["EINTR", "ENOMEM"],
    "ppoll": ["EINTR", "ENOMEM"],
    "futex": ["EINTR", "EAGAIN"],
}
# A run takes a second. One that takes so long will not end.
PATIENCE_SECONDS = 20
# The exit code of `inject` where the kernel cannot do what it needs.
UNSUPPORTED = 77
PART_CASES = 50
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
    Known("run", "mmap", "ENOMEM", "counters that `run` cannot map count as zero, with exit code 0"),
]


@dataclass(frozen=True)
class Case:
    """A run with one fault."""

    role: str
    call: str
    action: str
    nth: int

    def __str__(self) -> str:
        return f"{self.role} {self.call} {self.action} {self.nth}"

    def arguments(self) -> list[str]:
        """Those of `inject`."""
        if self.call == "point":
            return []
        action = self.action
        if action in errno.errorcode.values():
            action = f"errno:{getattr(errno, action)}"
        return ["--role", self.role, "--call", self.call, "--action", action, "--nth", str(self.nth)]

    @property
    def is_kill(self) -> bool:
        """Whether the process is killed, and not given an error."""
        return self.action == "kill"

    def kill_point(self, path: Path) -> str:
        """What `crates/shm/src/kill_points.rs` reads from its variable."""
        argument = {"run": "run", "keeper": "__keeper"}.get(self.role, "*")
        number = self.role.partition(".")[2] or "0"
        return f"{argument}:{number}:{self.nth}:{path}"

    def known(self) -> Known | None:
        return next((known for known in KNOWN if known.covers(self)), None)


@dataclass
class Outcome:
    """What came of a run."""

    problems: list[str]
    calls: dict[str, dict[str, int]]
    was_done: bool
    log: str
    code: int | None = None
    points: int = 0

    def read_point(self, file: Path) -> None:
        """What the process with a kill point wrote."""
        text = file.read_text() if file.exists() else ""
        self.was_done = text == "killed"
        self.points = int(text) if text.isdigit() else 0


def scenario() -> Round:
    """Two kinds of queues, samples of all sizes, a relay, and a sink that fails once and is started again."""
    again = {"restart_policy": "on-failure", "restart_delay": "1ms", "max_restart_delay": "1ms"}

    def reads(*topics: str, policy: str) -> dict[str, dict[str, Any]]:
        # A producer that waits lives until its consumer is back. The other queue has room for all that is
        # sent: a sample that is dropped is dropped for want of something else.
        size = 4 if policy == "block" else 100
        return {
            f"{policy}_{topic.split('/')[0]}": {"source": topic, "queue_policy": policy, "queue_size": size}
            for topic in topics
        }

    nodes = [
        Node(
            "source",
            outputs={"out": {}},
            orders={"bytes": [64, 5_000, 70_000], "pause_micros": 1_000, "count": SAMPLES},
        ),
        Node(
            "relay",
            reads("source/out", policy="drop_oldest"),
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
    return Round("injection", nodes, [], "natural")


class Campaign:
    """Runs of the scenario."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.plan = scenario()

    def count_points(self) -> dict[str, dict[str, int]]:
        """At how many system calls and other points each process can be killed."""
        calls = self.perform(Case("nobody", "all", "kill", 1)).calls
        points: dict[str, dict[str, int]] = {}
        for role, counts in calls.items():
            points[role] = {"all": counts.get("all", 0)}
            if not role.startswith("starting."):
                points[role]["point"] = self.perform(Case(role, "point", "kill", 0)).points
        return points

    def plan_for(self, case: Case | None, kill_point: Path) -> Round:
        """The dataflow, in which one node may have a kill point."""
        plan = copy.deepcopy(self.plan)
        for node in plan.nodes:
            if case and case.call == "point" and case.role.partition(".")[0] == node.id:
                node.keys["env"]["NERVURE_KILL_POINT"] = case.kill_point(kill_point)
        return plan

    def perform(self, case: Case | None) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="nervure-inject-") as name:
            folder = Path(name)
            paths = {name: folder / name for name in ("records", "temporary", "runtime", "logs")}
            for path in paths.values():
                path.mkdir(mode=0o700)
            report = folder / "report"
            kill_point = folder / "kill-point"
            file = self.plan_for(case, kill_point).write(
                folder, self.programs / "examples" / "soak_node", Path()
            )
            calls = "all" if case and case.call == "all" else ",".join(ACTIONS.keys() - {"all", "point"})
            command = [str(self.programs / "examples" / "inject"), "--report", str(report), "--calls", calls]
            # What the nodes write there is what is held against the counters.
            command += ["--except", str(paths["records"])]
            command += ["--patience-seconds", str(PATIENCE_SECONDS)]
            command += case.arguments() if case else []
            command += ["--", str(self.programs / "nervure"), "run", "--json", "--grace", "5s", str(file)]
            surroundings = environment(folder, paths["records"], paths["temporary"])
            surroundings |= {"XDG_RUNTIME_DIR": str(paths["runtime"])}
            if case and case.call == "point" and case.role in ("run", "keeper"):
                surroundings["NERVURE_KILL_POINT"] = case.kill_point(kill_point)
            running = Running(command, surroundings, folder)
            try:
                code = running.wait_for_end()
            finally:
                running.close()
            if not report.exists():
                return Outcome([f"`inject` ended with {code}"], {}, False, running.log(), code)
            told = json.loads(report.read_text())
            log = f"{running.log()}\nacted on {told['acted_on']}\n{edges(running)}"
            if told["hangs"]:
                return Outcome(["it hangs", *told["left"]], told["calls"], True, log)
            problems = [f"a process is left: {left}" for left in told["left"]]
            for path in (paths["temporary"], paths["runtime"]):
                problems += [f"a file is left: {left}" for left in path.iterdir()]
            problems += judge(self.plan, running, records.read(paths["records"]), code, case)
            outcome = Outcome(problems, told["calls"], bool(told["acted_on"]), log)
            if case and case.call == "point":
                outcome.read_point(kill_point.with_name(f"kill-point.{case.role.partition('.')[2] or 0}"))
            return outcome


def edges(running: Running) -> str:
    """The counts of every edge."""
    return "\n".join(
        f"{input}: "
        + ", ".join(f"{key} {value}" for key, value in edge.items() if isinstance(value, int) and value)
        for input, edge in running.edges.items()
    )


def judge(plan: Round, running: Running, written: records.Records, code: int, case: Case | None) -> list[str]:
    """What does not hold."""
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
        if running.summary is None:
            problems.append("it ended with 0, and without a summary")
    elif code == 3:
        # The process that held it may have used it, before it was killed.
        lost = any(edge["queue"]["policy"] == "block" and edge["lost"] for edge in running.edges.values())
        if not has_failed and not missing and not lost:
            problems.append("it ended with 3, and nothing failed and nothing is missing")
        if running.summary is None:
            problems.append("it ended with 3, and without a summary")
    elif code == 1:
        if not case or re.fullmatch(NODES, case.role):
            problems.append("it ended with 1, and the fault was none of run or keeper")
        if "error: " not in stderr and "could not be written to stdout" not in stderr:
            problems.append("it ended with 1, and without an error")
    elif not (case and case.role == "run" and is_end_of_run(code, stderr)):
        problems.append(f"it ended with {code}")
    return problems


def is_end_of_run(code: int, stderr: str) -> bool:
    """Whether `run` may end so before it has started anything, or because it was killed."""
    is_unreadable = code == 2 and "error[unreadable-file]" in stderr
    is_not_loaded = code == 127 and "error while loading shared libraries" in stderr
    return is_unreadable or is_not_loaded or code == 128 + signal.SIGKILL


def missing_samples(plan: Round, running: Running, written: records.Records) -> list[str]:
    """What should have arrived and did not, unless its queue may drop it and has counted that."""
    missing = []
    for node in plan.nodes:
        for name, source in node.edges.items():
            input = f"{node.id}/{name}"
            producer = plan.node(source["source"].split("/")[0])
            expected = sum(count_received(written, f"{producer.id}/{edge}") for edge in producer.edges)
            if producer.is_source:
                expected = SAMPLES
            if source["queue_policy"] != "block":
                expected -= running.edges.get(input, {}).get("lost", 0)
            received = count_received(written, input)
            # A process that is killed may have taken a sample that it has not written down.
            if received < expected - accounting.crashes(running, node.id):
                missing.append(f"{input} received {received} of {expected}")
    return missing


def count_received(written: records.Records, input: str) -> int:
    return sum(len(process) for process in written.received[input].values())


def cases_of(calls: dict[str, dict[str, int]]) -> dict[tuple[str, str, str], list[Case]]:
    """All cases, by role, call and action."""
    found = {}
    for role, counts in sorted(calls.items()):
        for call, count in sorted(counts.items()):
            # Without its program `inject` has nothing to run.
            for action in ACTIONS.get(call, []) if (role, call) != ("run", "execve") else []:
                found[role, call, action] = [Case(role, call, action, nth) for nth in range(1, count + 1)]
    return found


def sample(groups: dict[tuple[str, str, str], list[Case]], seed: int, most: int) -> Iterator[Case]:
    """Some of each group, in turn, and more of a large one: of each part of it."""
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
    without_fault = campaign.perform(None)
    if without_fault.code == UNSUPPORTED:
        print(f"SKIPPED: faults in system calls: {without_fault.log}")
        return 0
    if without_fault.problems:
        print(f"FAILED: without any fault\n{without_fault.problems}\n{without_fault.log}")
        return 1
    calls = without_fault.calls
    for role, counts in campaign.count_points().items():
        calls.setdefault(role, {}).update(counts)
    cases = choose(arguments, calls)
    left_out = [case for case in cases if case.known() and not (arguments.known or arguments.case)]
    for known in KNOWN:
        count = sum(case.known() == known for case in left_out)
        if count:
            print(
                f"LEFT OUT: {count} of {known.role} {known.call} {known.action}, known to fail: {known.why}"
            )
    cases = [case for case in cases if case not in left_out]
    print(f"{len(cases)} runs, each with one fault", flush=True)
    done: Counter[str] = Counter()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for case, outcome in zip(cases, pool.map(campaign.perform, cases), strict=True):
            done[tell(case, outcome, arguments.brief)] += 1
    facts = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    print(f"{facts}; {time.monotonic() - begin:.0f} s")
    return bool(done["failed"])


def choose(arguments: argparse.Namespace, calls: dict[str, dict[str, int]]) -> list[Case]:
    """What was asked for."""
    if arguments.case:
        role, call, action, nth = arguments.case
        return [Case(role, call, action, int(nth))]
    groups = {
        key: cases
        for key, cases in cases_of(calls).items()
        if all(re.fullmatch(pattern, part) for pattern, part in zip(arguments.only, key, strict=False))
    }
    return list(sample(groups, arguments.seed, arguments.most or sum(map(len, groups.values()))))


def tell(case: Case, outcome: Outcome, is_brief: bool) -> str:
    """What kind of outcome it was."""
    if not outcome.problems:
        return "passed" if outcome.was_done else "did not get to the call"
    known = case.known()
    print(f"{'FAILED, as is known' if known else 'FAILED'}: {case}\n" + "\n".join(outcome.problems))
    if not is_brief:
        print(f"--- told last\n{outcome.log}")
    print(f"again: make test-faults CASE='{case}'", flush=True)
    return "known to fail" if known else "failed"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak.injection", description="Lets single system calls fail.")
    parser.add_argument("--seed", type=int, default=1, help="decides which cases (default 1)")
    parser.add_argument("--most", type=int, default=0, help="how many cases (default all)")
    parser.add_argument("--case", nargs=4, metavar=("ROLE", "CALL", "ACTION", "N"), help="only this one")
    parser.add_argument("--only", nargs="+", default=[], help="patterns of role, call and action")
    parser.add_argument("--known", action="store_true", help="with cases that are known to fail")
    parser.add_argument("--jobs", type=int, default=4, help="how many at a time (default 4)")
    parser.add_argument("--brief", action="store_true", help="no logs of failures")
    parser.add_argument(
        "--programs", type=Path, default=REPOSITORY / "target" / "debug", help="where the programs are"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
