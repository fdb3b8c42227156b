"""The fault campaign finds wrong records, wrong counters, and leftovers."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from soak import accounting, faults, plan, processes, records, watchers

CLEAN_END = {"signal": None, "code": 0, "failed": False, "restarts": False, "incarnation": 0}
KILLED = {"signal": 9, "code": None, "failed": True, "restarts": True, "incarnation": 0}


class Case:
    """A source of 10 samples, and a sink that has received all."""

    def __init__(self, tmp_path: Path, policy: str = "block") -> None:
        self.folder = tmp_path
        source = plan.Node("source", outputs={"out": {}}, orders={"pause_micros": 1})
        sink = plan.Node("sink", {"in": {"source": "source/out", "queue_policy": policy}})
        self.round = plan.Round("test", [source, sink], [], "natural")
        self.sent = [line for n in range(10) for line in (f"> out {n}", f"< out {n} 1 0")]
        self.received = [f"= in 0 {number} {number}" for number in range(10)]
        self.counters: dict[str, Any] = dict.fromkeys(
            [
                *accounting.MISSED,
                accounting.AWAY,
                "dropped_oldest",
                "dropped_away",
                "undelivered",
                "lost_in_crash",
                "lost_with_producer",
                "lost",
                "not_taken",
            ],
            0,
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


def test_who_is_not_the_keepers_may_be_gone_without_a_word(tmp_path: Path) -> None:
    gone = KILLED | {"signal": None, "restarts": False}
    case = Case(tmp_path)
    case.ends["sink"] = [gone]
    case.received.pop()
    assert case.problems() == []
    case.ends["sink"] = [gone | {"cause": "left"}]
    assert case.problems() != []


def test_nothing_is_kept_for_a_node_that_has_not_joined(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.counters.update(sent=0, received=0)
    case.received.clear()
    assert case.problems() != []
    case.round.node("sink").is_dynamic = True
    case.sent = [line.replace(" 1 0", " 0 0") for line in case.sent]
    assert case.problems() == []


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


def test_descriptors_are_distinguished_by_kind() -> None:
    before = processes.descriptors(os.getpid())
    with Path("/dev/null").open():
        after = processes.descriptors(os.getpid())
    assert after - before == {"/dev/null": 1}


FAILED = {0, 1, 3}
# Incarnation, number, sequence.
HEARD = [(0, 0, 0), (0, 1, 1), (2, 0, 0)]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([(0, 2), (1, 2)], None),
        ([(0, 2)], "no last word of incarnation 1"),
        ([(0, 2), (1, 2), (2, 3)], "a last word of incarnation 2, which did not fail"),
        ([(0, 2), (0, 2), (1, 2)], "2 last words of incarnation 0"),
        ([(0, 1), (1, 2)], "(0, 1, 1) behind the last word of incarnation 0"),
        ([(0, 2), (1, 3)], "(2, 0, 0) before the last word of incarnation 1"),
    ],
)
def test_last_words_are_said_once_and_in_their_place(words: list[Any], problem: str | None) -> None:
    found = accounting.last_words_of(words, HEARD, FAILED, has_history=False)
    assert (not found) if problem is None else any(problem in text for text in found), found


def test_a_process_that_inherits_samples_need_not_have_the_events_before_it() -> None:
    assert accounting.last_words_of([], HEARD, FAILED, has_history=False, inherits=True) == []
    found = accounting.last_words_of([(0, 2)], HEARD, FAILED, has_history=False, inherits=True)
    assert found == ["no last word of incarnation 1"]


def test_a_last_word_of_a_node_that_promised_none_is_found(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (tmp_path / "sink.0").write_text("= in 0 0 0\nf in 0\n")
    running: Any = SimpleNamespace(ends={"source": [KILLED], "sink": [CLEAN_END]})
    found = accounting.check_last_words(case.round, running, records.read(tmp_path))
    assert found and "which did not fail" in found[0], found
    case.round.node("source").keys["on_failure"] = {"output": "out", "value": 0}
    assert accounting.check_last_words(case.round, running, records.read(tmp_path)) == []


def test_a_clock_that_goes_back_is_found(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.received.append("x clock it reads 5 after 6")
    assert any("reads 5 after 6" in found for found in case.problems())


def test_the_value_of_a_parameter_that_a_process_heard_last_is_read(tmp_path: Path) -> None:
    assert records.last_param(tmp_path, "node", 1) is None
    # The last line was cut off by a kill.
    (tmp_path / "node.1").write_text("p number 3\n= in 0 0 0\np number 17\np number 4")
    assert records.last_param(tmp_path, "node", 1) == 17


def test_what_flows_is_followed_through_loops() -> None:
    source = plan.Node("source", outputs={"out": {}}, orders={"pause_micros": 1})
    first = plan.Node("first", {"in": {"source": "source/out"}, "back": {"source": "last/out"}}, {"out": {}})
    last = plan.Node("last", {"in": {"source": "first/out"}}, {"out": {}})
    assert faults.flowing_inputs([source, first, last], {"source"}) == ["first/in", "last/in", "first/back"]
    first.orders["silent"] = ["in"]
    assert faults.flowing_inputs([source, first, last], {"source"}) == ["first/in"]
    ticking = plan.Node("ticking", {plan.TICK: {"source": "nervure/timer/hz/9"}}, {"out": {}})
    assert ticking.is_source and faults.flowing_inputs([ticking], {"ticking"}) == []


def test_rounds_have_what_the_campaign_promises() -> None:
    rounds = [plan.make_round(1, number, with_python=True, with_mounts=True) for number in range(300)]
    nodes = [node for plan_ in rounds for node in plan_.nodes]
    assert any("silent" in node.orders for node in nodes), "loops"
    assert any("on_failure" in node.keys for node in nodes) and any("params" in node.keys for node in nodes)
    assert any(plan_.clock for plan_ in rounds) and {plan_.surroundings for plan_ in rounds} >= {"full disk"}
    kinds = {fault.kind for plan_ in rounds for fault in plan_.faults}
    assert kinds >= {"kill", "stop", "param", "observe", "record", "record on a small disk", "kill watchers"}


def grow(megabytes: int, shared: bool) -> subprocess.Popen[bytes]:
    """Starts a process with this much private memory or a segment of this size; returns when it has it."""
    script = f"""
import mmap, os, sys
size = {megabytes} << 20
if {shared}:
    memfd = os.memfd_create("nervure-segment")
    os.ftruncate(memfd, size)
    memory = mmap.mmap(memfd, size)
else:
    memory = bytearray(size)
memory[:] = bytes(1) * size if not {shared} else memory[:]
print(flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def test_memory_that_is_not_given_back_is_found() -> None:
    small, large = grow(1, shared=False), grow(80, shared=False)
    try:
        base, now = ({"node": processes.own_bytes(process.pid)} for process in (small, large))
        assert base["node"] and now["node"]
        most = {"node": faults.GROWTH_BYTES["python"]}
        assert faults.grown(base, base, most) == []
        assert "bytes of its own" in faults.grown(base, now, most)[0]
    finally:
        for process in (small, large):
            process.communicate()


def test_segments_without_users_are_found() -> None:
    case = plan.Round(
        "test",
        [
            plan.Node("source", outputs={"out": {}}, orders={"bytes": [1000]}),
            plan.Node("sink", {"in": {"source": "source/out", "queue_size": 2}}),
        ],
        [],
        "stop",
    )
    most = faults.most_segment_bytes(case)
    # Two samples in the queue, eight held, and the spare ones.
    assert most == (2 + 8 + faults.SPARE_BLOCKS) * 1250
    process = grow(4, shared=True)
    try:
        shared = processes.segment_bytes([process.pid, process.pid])
        assert list(shared.values()) == [4 << 20]
        assert "1 segments take 4194304 bytes" in faults.too_much_shared(shared, most)[0]
        assert faults.too_much_shared(shared, 4 << 20) == []
    finally:
        process.communicate()


def test_a_small_disk_is_full_soon_and_seen_by_the_campaign_alone(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from soak import mounts
if not mounts.enter_own_namespace():
    sys.exit(77)
folder = Path(sys.argv[1])
mounts.mount_small_disk(folder, 8)
try:
    (folder / "file").write_bytes(bytes(20_000))
except OSError as error:
    assert error.errno == 28, error
else:
    raise AssertionError("it has room")
mounts.unmount(folder)
assert not list(folder.iterdir())
"""
    tests = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=tests, check=False)
    if done.returncode == 77:
        pytest.skip("this user may not mount a file system in a namespace of its own")
    assert done.returncode == 0


def test_a_recording_that_cannot_be_read_and_a_full_disk_are_found(tmp_path: Path) -> None:
    refuses = tmp_path / "nervure"
    refuses.write_text("#!/bin/sh\necho damaged >&2\nexit 1\n")
    refuses.chmod(0o755)
    seen = watchers.Watchers(refuses, dict(os.environ), tmp_path, tmp_path)
    assert seen.unreadable() == [] and seen.full_disks() == 0
    recording = tmp_path / "0.mcap"
    recording.write_bytes(b"x")
    seen.recordings.append(recording)
    (tmp_path / "watchers").write_text("error: .. No space left on device (os error 28); ..\n")
    assert "damaged" in seen.unreadable()[0] and seen.full_disks() == 1
