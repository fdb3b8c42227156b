#!/usr/bin/env python3
"""Runs the stages of `make test` and prints how long each took: `scripts/stages.py [STAGE..]`.

A stage is a target of the Makefile. It starts when the stages that it needs have passed and enough of the
machine is free: a stage that computes counts for more than one that mostly waits. The output of a stage goes
to a file, and is printed if the stage fails. Running stages are named once a minute, with their last line.
After a failure no further stage starts.

A test that fails runs once more. Tests that pass then are named as flaky at the end, with the output of the
failure; from the fourth on, the run fails.
"""

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
LOGS = REPOSITORY / "out" / "test"
# Limit of the load of concurrent stages, in tenths of a core for two cores.
CAPACITY = 30
REPORT_SECONDS = 60
# Timeout of a stage: the slowest takes a fifth of this on two cores.
STAGE_SECONDS = 2400
LINES_OF_A_FAILURE = 400
# Runs on a busy machine had one each, of 2,200 tests: more than a few come from a change.
MOST_FLAKY = 3
# As nextest and pytest-rerunfailures name a test that passed when it ran again.
FLAKY = re.compile(r"^ +FLAKY \d+/\d+ \[.*?\] (?:\(.*?\) )?(.+)$|^PASSED (\S+::\S+)$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Stage:
    name: str
    load: int
    """Cores in use, in tenths, as measured on two cores."""
    needs: tuple[str, ...] = ()


@dataclass
class Running:
    stage: Stage
    process: subprocess.Popen[bytes]
    descriptor: int
    """A pidfd: readable when the process has ended."""
    log: Path
    begin: float


@dataclass
class Ended:
    stage: Stage
    code: int
    seconds: float
    cpu_seconds: float
    text: str
    """Its output, without colours."""

    @property
    def flaky(self) -> set[str]:
        """The tests that failed at first, and passed when they ran again."""
        return {nextest or pytest for nextest, pytest in FLAKY.findall(self.text)}


STAGES = [
    Stage("build-test", 20),
    # The two longest first: they leave gaps that the others fill.
    Stage("test-guides", 15, ("build-test",)),
    Stage("test-rust", 15, ("build-test",)),
    Stage("test-soak", 5, ("build-test",)),
    Stage("lint", 20),
    Stage("test-faults", 15, ("build-test",)),
    Stage("test-dora", 10, ("build-test",)),
    Stage("test-asan", 15, ("build-test",)),
    Stage("test-loom", 15, ("build-test",)),
    Stage("test-python", 10, ("build-test",)),
    Stage("test-lab", 10, ("build-test",)),
    Stage("test-small", 10, ("build-test",)),
    Stage("test-fuzz", 15, ("build-test",)),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    arguments = parser.parse_args()
    known = {stage.name: stage for stage in STAGES}
    if unknown := set(arguments.stages) - known.keys():
        parser.error(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [stage for stage in STAGES if not arguments.stages or stage.name in arguments.stages]
    LOGS.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    ended = run(chosen)
    print_table(ended, time.monotonic() - begin)
    failed = [it.stage.name for it in ended if it.code]
    left = [stage.name for stage in chosen if stage.name not in {it.stage.name for it in ended}]
    flaky = [(it.stage.name, test) for it in ended for test in sorted(it.flaky)]
    for stage, test in flaky:
        print(f"FLAKY: {test} of {stage} failed, and passed when it ran again")
    for name in failed:
        print(f"FAILED: {name}; run it alone with `make {name}`")
    if left:
        print(f"not run: {', '.join(left)}")
    if len(flaky) > MOST_FLAKY:
        print(f"FAILED: {len(flaky)} flaky tests, at most {MOST_FLAKY} may be")
    return 1 if failed or left or len(flaky) > MOST_FLAKY else 0


def run(chosen: list[Stage]) -> list[Ended]:
    """Runs the stages; after a failure no further stage starts."""
    names = {stage.name for stage in chosen}
    waiting, running, ended = list(chosen), [], []
    reported = time.monotonic()
    while True:
        passed = {it.stage.name for it in ended if not it.code}
        if not any(it.code for it in ended):
            for stage in [stage for stage in waiting if (names & set(stage.needs)) <= passed]:
                if not running or stage.load + sum(it.stage.load for it in running) <= CAPACITY:
                    waiting.remove(stage)
                    running.append(start(stage))
        if not running:
            return ended
        if done := reap(running):
            reported = time.monotonic()
            running = [it for it in running if it.stage is not done.stage]
            ended.append(done)
            print_end(done)
        elif time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            for it in running:
                print(f"    {it.stage.name}: {clock(reported - it.begin)}: {last_line(it.log)}", flush=True)


def start(stage: Stage) -> Running:
    log = LOGS / f"{stage.name}.log"
    print(f"==> {stage.name}: started", flush=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "--no-print-directory", stage.name],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(stage, process, os.pidfd_open(process.pid), log, time.monotonic())


def reap(running: list[Running]) -> Ended | None:
    """Waits up to ten seconds for the end of one of the stages."""
    poll = select.poll()
    for it in running:
        poll.register(it.descriptor, select.POLLIN)
    readable = {descriptor for descriptor, _ in poll.poll(10_000)}
    for it in running:
        seconds = time.monotonic() - it.begin
        if it.descriptor in readable:
            _, status, usage = os.wait4(it.process.pid, 0)
            os.close(it.descriptor)
            it.process.returncode = os.waitstatus_to_exitcode(status)
            cpu = usage.ru_utime + usage.ru_stime
            return Ended(it.stage, it.process.returncode, seconds, cpu, text_of(it.log))
        if seconds > STAGE_SECONDS:
            with it.log.open("a") as log:
                log.write(f"\nerror: {it.stage.name} still runs after {clock(seconds)}: it is killed\n")
            os.killpg(it.process.pid, signal.SIGKILL)
    return None


def print_end(done: Ended) -> None:
    result = "failed" if done.code else "passed"
    print(f"==> {done.stage.name}: {result} after {clock(done.seconds)}", flush=True)
    lines = done.text.splitlines()
    if done.code or done.flaky:
        print("\n".join(lines[-LINES_OF_A_FAILURE:]), flush=True)
    else:
        shown = [line for line in lines if re.search(r"SKIPPED|LEFT OUT|seed|\d+ passed|test result: ", line)]
        print("\n".join(f"    {line}" for line in shown), flush=True)


def text_of(log: Path) -> str:
    return COLOUR.sub("", log.read_text(errors="replace"))


def last_line(log: Path) -> str:
    lines = text_of(log).split("\n")
    return next((line.strip()[:160] for line in reversed(lines) if line.strip()), "no output yet")


def print_table(ended: list[Ended], seconds: float) -> None:
    """Prints the times of all stages, the longest first, to show growth."""
    print(f"\n{'STAGE':<14}{'TIME':>8}{'CPU':>8}")
    for it in sorted(ended, key=lambda it: -it.seconds):
        result = "  failed" if it.code else ""
        print(f"{it.stage.name:<14}{clock(it.seconds):>8}{clock(it.cpu_seconds):>8}{result}")
    print(f"{'all':<14}{clock(seconds):>8}{clock(sum(it.cpu_seconds for it in ended)):>8}\n", flush=True)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
