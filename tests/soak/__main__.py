"""Runs the campaign: `python -m soak --help`."""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from . import faults, mounts, processes
from .plan import fresh_seed, make_kills, make_round

REPOSITORY = Path(__file__).parents[2]


def main() -> int:
    arguments = parse()
    processes.adopt_orphans()
    faults.raise_limits()
    folder = arguments.programs.resolve()
    programs = faults.Programs(
        nervure=folder / "nervure",
        rust_node=folder / "examples" / "soak_node",
        python_node=Path(__file__).with_name("python_node.py"),
    )
    with_mounts = mounts.enter_own_namespace()
    if not with_mounts:
        print("SKIPPED: full disks, which need the right to mount one in a namespace of one's own")
    print(f"seed {arguments.seed}", flush=True)
    begin = time.monotonic()
    done: Counter[str] = Counter()
    number = arguments.round or 0
    while True:
        if arguments.kills:
            plan = make_kills(arguments.seed, arguments.kills)
        else:
            plan = make_round(arguments.seed, number, arguments.python, with_mounts)
        print(f"round {plan.name}: {plan.summary()}", flush=True)
        try:
            done += faults.perform(plan, programs, lambda text: print(f"  {text}", flush=True))
        except faults.RoundFailed as failure:
            print(f"FAILED: round {plan.name}\n{failure}\n")
            which = f"KILLS={arguments.kills}" if arguments.kills else f"ROUND={number}"
            print(f"again: make soak SEED={arguments.seed} {which}")
            return 1
        done["rounds"] += 1
        number += 1
        if (
            arguments.kills
            or arguments.round is not None
            or time.monotonic() - begin > arguments.minutes * 60
        ):
            break
    facts = ", ".join(f"{count} {kind}" for kind, count in done.most_common())
    print(f"passed in {time.monotonic() - begin:.0f} s with seed {arguments.seed}: {facts}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="soak", description="Kills and stops what runs, and checks what is left."
    )
    parser.add_argument(
        "--seed", type=int, default=fresh_seed(), help="decides what is done (default: fresh)"
    )
    parser.add_argument("--minutes", type=float, default=20, help="how long (default 20)")
    parser.add_argument("--round", type=int, help="only this round of the seed")
    parser.add_argument("--kills", type=int, help="instead: one run whose nodes are killed so often")
    parser.add_argument("--python", action="store_true", help="with some nodes in Python")
    parser.add_argument(
        "--programs", type=Path, default=REPOSITORY / "target" / "debug", help="where the programs are"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
