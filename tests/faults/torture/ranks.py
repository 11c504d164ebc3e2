"""Something happens to one of several processes, to its launcher, or to one of two machines."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .arena import fingerprint
from .processes import Driver, end_of, environment
from .rank import Plan
from .trial import Arena, Task, Trial, finish, read_stderr

PHASE = "a blow to one of several processes"
SIZE = 2
OVERRIDES = (
    "training.max_steps=24", "tokenizer.kind=bpe", "tokenizer.max_size=300", "training.bpe_dropout=0.1",
)  # fmt: skip
MARK = "MT_TORTURED_RUN"
"""All processes of a run have this variable, also those that they start."""

# How often a process is there in a session, the end of the run left out.
OCCURRENCES = {"start-up": 1, "epoch making": 2, "training": 20, "validation": 4, "saving": 8}
PROCESS, LAUNCHER, MACHINE, STOP = "kill -9", "kill -9 of the launcher", "loss of the machine", "SIGSTOP"
STEP_SECONDS = 60
"""How long a process waits for the others within a step."""

_LONGEST_SECONDS = 900.0
"""Several processes on a machine with other work take long to start."""

Launchers = Sequence["subprocess.Popen[str]"]


@dataclass(frozen=True)
class Blow:
    """What happens where and when."""

    what: str
    rank: int
    point: str
    occurrence: int
    delay: float | None
    """Seconds after the process has reached the point; None if it waits there."""
    num_machines: int

    @property
    def name(self) -> str:
        """The blow in words."""
        when = "at" if self.delay is None else f"{1000 * self.delay:.0f} ms after"
        where = f"{self.num_machines} machine{'s' * (self.num_machines > 1)}"
        return f"{self.what}, process {self.rank}, {where}, {when} {self.point} {self.occurrence}"

    @property
    def limit(self) -> int:
        """Seconds in which all must have ended on a machine with nothing else to do."""
        if self.what == STOP:
            return STEP_SECONDS + 45
        if self.what == LAUNCHER and self.num_machines == 1:
            return 5
        return 15 if self.point == "training" else 45


def blows(arena: Arena, count: int, chance: random.Random) -> list[Task]:
    """In every part of a run; one in ten stops a process, which takes minutes to be noticed."""
    unbroken = arena.new_run()
    if code := _Torchrun(1).train(arena.config, unbroken):
        raise SystemExit(f"the unbroken run ended with {code}:\n{read_stderr(unbroken)}")
    of_several = replace(arena, unbroken=unbroken, fingerprint=fingerprint(unbroken))
    return [_task(draw(number, chance), of_several) for number in range(count)]


def draw(number: int, chance: random.Random) -> Blow:
    """The blow of that number, which decides what happens in which part of a run."""
    what = STOP if number % 10 == 9 else (PROCESS, MACHINE, PROCESS, LAUNCHER)[number % 4]
    # All who stop elsewhere are waited for as long as it takes.
    point = "training" if what == STOP else list(OCCURRENCES)[number % 5]
    is_cluster = what == MACHINE or (what == LAUNCHER and chance.random() < 0.5)
    return Blow(
        what,
        chance.randrange(SIZE),
        point,
        chance.randint(1, OCCURRENCES[point]),
        None if what == STOP or chance.random() < 0.5 else chance.uniform(0, 0.2),
        2 if is_cluster else 1,
    )


def _task(blow: Blow, of_several: Arena) -> Task:
    def task(_: Arena, driver: Driver) -> Trial:
        trial = Trial(PHASE, blow.name)
        run = of_several.new_run()
        plan = Plan(blow.rank, blow.point, blow.occurrence, blow.delay is None, str(run.with_name("told")))
        launchers = _start(of_several.config, run, blow.num_machines, plan)
        try:
            _strike_and_watch(trial, blow, plan, run, launchers)
        finally:
            for pid in _alive(run):
                os.kill(pid, signal.SIGKILL)
            codes = [launcher.wait() for launcher in launchers]
        if not any(codes):
            trial.blame("wrong", "all launchers ended as if nothing had happened")
        finish(trial, of_several, _Torchrun(blow.num_machines), run)
        return trial

    return task


def _strike_and_watch(trial: Trial, blow: Blow, plan: Plan, run: Path, launchers: Launchers) -> None:
    told = Path(plan.told)
    began = time.monotonic()
    while not told.exists():
        have_ended = all(launcher.poll() is not None for launcher in launchers)
        if have_ended or time.monotonic() - began > _LONGEST_SECONDS:
            trial.blame("wrong", f"was not struck: {read_stderr(run)[-500:]}")
            return
        time.sleep(0.002)
    time.sleep(blow.delay or 0)
    began = time.monotonic()
    _strike(blow.what, int(told.read_text()), run)
    last = []
    while (left := _alive(run)) and time.monotonic() - began < 4 * blow.limit + 60:
        last = [_role(pid, launchers) for pid in left]
        for launcher in launchers:
            launcher.poll()
        time.sleep(0.02)
    seconds = time.monotonic() - began
    trial.seen = f"{seconds:.1f} of {blow.limit} s"
    if left:
        trial.blame("left over", f"{last} after {seconds:.0f} seconds")
    elif seconds > blow.limit:
        trial.blame("wrong", f"all had ended only after {seconds:.0f} seconds, the last was {last}")


def _strike(what: str, pid: int, run: Path) -> None:
    launcher = _parent(pid)
    on_machine = [other for other in _alive(run) if other == launcher or _parent(other) == launcher]
    struck = {PROCESS: [pid], STOP: [pid], LAUNCHER: [launcher], MACHINE: [launcher, *on_machine]}[what]
    for each in struck:
        os.kill(each, signal.SIGSTOP if what == STOP else signal.SIGKILL)


def _alive(run: Path) -> list[int]:
    """The processes of a run, zombies left out."""
    mark = f"{MARK}={run}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # Another user's, or it has just ended.
            continue
    return found


def _role(pid: int, launchers: Launchers) -> str:
    if any(launcher.pid == pid for launcher in launchers):
        return "a launcher"
    is_worker = any(launcher.pid == _parent(pid) for launcher in launchers)
    return "a process of the run" if is_worker else "a process that one of the run has started"


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _start(
    config: Path, run: Path, num_machines: int, plan: Plan | None = None
) -> list["subprocess.Popen[str]"]:
    """Start ``mt train`` by two processes, on one machine or on two."""
    program = ["mt"]
    if plan is not None:
        plan_file = run.with_name("plan.json")
        plan_file.write_text(json.dumps(asdict(plan)))
        program = ["tests.faults.torture.rank", str(plan_file)]
    how = ["--standalone", f"--nproc-per-node={SIZE}"]
    environ = {**environment(), MARK: str(run), "GOMP_SPINCOUNT": "0"}
    if num_machines > 1:
        how = [
            f"--nnodes={num_machines}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{_free_port()}",
            "--local-addr=127.0.0.1", f"--nproc-per-node={SIZE // num_machines}",
        ]  # fmt: skip
    options = ["train", "--config", str(config), "--run", str(run)]
    options += [word for override in OVERRIDES for word in ("--set", override)]
    with run.with_suffix(".stderr").open("a") as file:
        return [
            subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *how, "-m", "--", *program, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environ,
                text=True,
            )
            for _ in range(num_machines)
        ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Torchrun(Driver):
    """Trains by two processes where a driver would fork one."""

    def __init__(self, num_machines: int) -> None:
        self._num_machines = num_machines

    def train(self, config: Path, run: Path, **fate: object) -> int:
        """Train as a user does; the exit code that is not 0, if there is one."""
        assert not fate
        codes = [end_of(launcher, _LONGEST_SECONDS) for launcher in _start(config, run, self._num_machines)]
        return next((code for code in codes if code), 0)
