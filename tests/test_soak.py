"""That the fault campaign notices what is wrong: with records, with counters, and with what is left."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from soak import accounting, plan, processes, records

CLEAN_END = {"signal": None, "code": 0, "failed": False, "restarts": False, "incarnation": 0}
KILLED = {"signal": 9, "code": None, "failed": True, "restarts": True, "incarnation": 0}


class Case:
    """A source of 10 samples and a sink that got them all."""

    def __init__(self, tmp_path: Path, policy: str = "block") -> None:
        self.folder = tmp_path
        source = plan.Node("source", outputs={"out": {}}, orders={"pause_micros": 1})
        sink = plan.Node("sink", {"in": {"source": "source/out", "queue_policy": policy}})
        self.round = plan.Round("test", [source, sink], [], "natural")
        self.sent = [line for n in range(10) for line in (f"> out {n}", f"< out {n} 1 0")]
        self.received = [f"= in 0 {number} {number}" for number in range(10)]
        self.counters: dict[str, Any] = dict.fromkeys(
            [*accounting.MISSED, "dropped_oldest", "undelivered", "lost_in_crash"], 0
        )
        self.counters |= {"sent": 10, "received": 10, "topic": "source/out", "input": "sink/in"}
        self.counters["queue"] = {"policy": policy, "depth": 10, "max_held": 18}
        self.ends = {"source": [CLEAN_END], "sink": [CLEAN_END]}

    def problems(self) -> list[str]:
        (self.folder / "source.0").write_text("\n".join([*self.sent, ""]))
        (self.folder / "sink.0").write_text("\n".join([*self.received, ""]))
        written = records.read(self.folder)
        running: Any = SimpleNamespace(edges={"sink/in": self.counters}, ends=self.ends)
        return accounting.check_samples(self.round, written) + accounting.check_counters(
            self.round, running, written
        )


def test_a_round_in_order_has_no_problems(tmp_path: Path) -> None:
    assert Case(tmp_path).problems() == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda case: case.received.append("= in 0 9 9"), "after"),
        (lambda case: case.received.reverse(), "after"),
        (lambda case: case.received.append("= in 0 77 10"), "was never sent"),
        (lambda case: case.received.append("= in 1 0 0"), "was never sent"),
        (lambda case: case.received.append("x in chunk 0 is not that of sample 3"), "chunk 0"),
        (lambda case: case.received.pop(), "10 counted as received, 9 written down"),
        (lambda case: case.counters.update(received=9), "9 counted as received, 10 written down"),
        (lambda case: case.counters.update(sent=9), "9 counted as published, 10 written down"),
        (lambda case: case.counters.update(sent=11), "1 are neither received nor counted"),
        (lambda case: case.counters.update(lost_in_crash=1), "lost_in_crash cannot be"),
        (lambda case: case.counters.update(dropped_oldest=1, received=9), "dropped_oldest cannot be"),
        (lambda case: case.sent.__setitem__(7, "< out 3 0 0"), "3 of incarnation 0 (0 queued, 0 missed)"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, change: Any, problem: str) -> None:
    case = Case(tmp_path)
    change(case)
    assert any(problem in found for found in case.problems()), case.problems()


def test_a_killed_process_may_leave_one_act_uncounted_and_no_two(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.ends["sink"] = [KILLED, CLEAN_END | {"incarnation": 1}]
    case.received.pop()
    assert case.problems() == []
    case.received.pop()
    assert case.problems() != []


def test_the_seed_and_the_number_decide_the_round() -> None:
    def made(seed: int, number: int) -> plan.Round:
        return plan.make_round(seed, number, with_python=True, with_mounts=True)

    assert made(7, 3) == made(7, 3)
    assert made(7, 3) != made(7, 4) and made(7, 3) != made(8, 3)


def test_a_process_that_outlives_its_parent_is_seen() -> None:
    script = """
import os, subprocess, sys
from soak import processes
processes.adopt_orphans()
subprocess.run(["sh", "-c", "setsid sleep 1000 &"], check=True)
def left():
    return [processes.command_line(pid) for pid in processes.reap_orphans(0)]
assert processes.wait_until(60, lambda: left() == ["sleep 1000"]), left()
os.kill(processes.reap_orphans(0)[0], 9)
assert processes.wait_until(60, lambda: not processes.reap_orphans(0))
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent)


def test_descriptors_are_told_apart_by_kind() -> None:
    before = processes.descriptors(os.getpid())
    with Path("/dev/null").open():
        after = processes.descriptors(os.getpid())
    assert after - before == {"/dev/null": 1}
