"""All phases one after another, a few trials at a time, and then the table: what `scripts/torture` does."""

import argparse
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from .damage import damages
from .disk import full_after_bytes, full_at_every_call
from .files import damaged_files
from .kills import NAMED, RANDOM, named_kills, random_kills
from .processes import Driver
from .ranks import PHASE as BLOWS
from .ranks import blows
from .readers import readers
from .signals import signals
from .trial import Arena, Kind, Task, Trial, make_arena

STEPS = 36
SECONDS_BETWEEN_LINES = 15.0

Phase = Callable[[Arena, random.Random, bool], list[Task]]

PHASES: dict[str, Phase] = {
    "kills": lambda arena, chance, quick: random_kills(arena, 2 if quick else 50, chance),
    "points": lambda arena, chance, quick: named_kills(arena, chance, most=4 if quick else None),
    "damage": lambda arena, chance, quick: damages(20 if quick else 200, chance, most_resumed=quick or None),
    "files": lambda arena, chance, quick: damaged_files(1, chance)[:: 8 if quick else 1],
    "disk": lambda arena, chance, quick: full_at_every_call(arena, chance, most=2 if quick else None),
    "room": lambda arena, chance, quick: full_after_bytes(arena, 2 if quick else 20, chance),
    "signals": lambda arena, chance, quick: signals(arena, chance, most=3 if quick else None),
    "readers": lambda arena, chance, quick: readers(5 if quick else 75),
    "ranks": lambda arena, chance, quick: blows(arena, 1 if quick else 20, chance),
}
"""What `--phases` chooses from; the last argument is whether a few trials are enough."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every phase; 0 where all passed, else 1."""
    parser = argparse.ArgumentParser(
        prog="scripts/torture", description="Kill, cut off and mislead runs, resume them, and compare."
    )
    parser.add_argument("--quick", action="store_true", help="a few trials of each kind, in about a minute")
    parser.add_argument("--seed", type=int, default=1, help="moments, lengths and bits are drawn from it")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES), help="these alone")
    options = parser.parse_args(arguments)
    # A shell lets what runs in the background ignore Ctrl-C, nohup the end of the terminal, and so would the
    # runs that are started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    started = time.monotonic()
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="mt-torture-") as folder:
        arena = make_arena(Path(folder) / "arena", Driver(), steps=STEPS)
        say(f"Moments, lengths and bits are drawn from seed {options.seed}.")
        say(f"The unbroken run: {STEPS} steps, sha256 of its weights {arena.fingerprint.weights}")
        for phase in options.phases:
            tasks = PHASES[phase](arena, random.Random(options.seed), options.quick)
            trials += run_tasks(tasks, arena, options.jobs)
    say(f"\n{table(trials)}\n\n{totals(trials)}\n\n{(time.monotonic() - started) / 60:.1f} minutes")
    return int(any(trial.problems for trial in trials))


def run_tasks(tasks: Sequence[Task], arena: Arena, jobs: int) -> list[Trial]:
    """Do them, with a line now and then, and one for each problem."""
    trials: list[Trial] = []
    last_line = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(task, arena, Driver()) for task in tasks]):
            trial = future.result()
            trials.append(trial)
            for kind, text in trial.problems:
                say(f"  FAILED  {trial.phase}: {trial.name}: {kind}: {text}")
            if trial.phase == BLOWS:
                say(f"  {trial.name}: all ended after {trial.seen}")
            if time.monotonic() - last_line > SECONDS_BETWEEN_LINES or len(trials) == len(tasks):
                last_line = time.monotonic()
                failed = sum(bool(trial.problems) for trial in trials)
                say(f"{trial.phase}: {len(trials)} of {len(tasks)} done, {failed} failed")
    return trials


def table(trials: Sequence[Trial]) -> str:
    """How many were tried, passed and failed in each phase, in Markdown."""
    lines = ["| what happens to the run | tried | passed | failed |", "|---|---:|---:|---:|"]
    for phase in dict.fromkeys(trial.phase for trial in trials):
        of_phase = [trial for trial in trials if trial.phase == phase]
        failed = sum(bool(trial.problems) for trial in of_phase)
        lines.append(f"| {phase} | {len(of_phase)} | {len(of_phase) - failed} | {failed} |")
    return "\n".join(lines)


def totals(trials: Sequence[Trial]) -> str:
    """What all this was for, in four sentences; and what the killed runs were doing."""
    problems: Counter[Kind] = Counter(kind for trial in trials for kind, _ in trial.problems)
    lines = []
    for phase in (RANDOM, NAMED):
        kills = [trial for trial in trials if trial.phase == phase]
        if not kills:
            continue
        resumed = sum(not trial.problems for trial in kills)
        seen = Counter(trial.seen for trial in kills)
        doing = ", ".join(f"{count} {what}" for what, count in seen.most_common())
        at = phase.removeprefix("kill -9 ")
        lines.append(f"{resumed} of {len(kills)} kills {at} resumed to the identical final sha256 ({doing})")
    num_damaged = sum(trial.num_damaged for trial in trials)
    lines.append(f"{problems['loaded']} damaged checkpoints loaded out of {num_damaged:,} damaged")
    lines.append(f"{problems['left over']} leftovers that are not cleaned up")
    lines.append(f"{problems['lost']} runs lost")
    return "\n".join(lines)


def say(text: str) -> None:
    """Print at once, also into a file."""
    print(text, flush=True)
