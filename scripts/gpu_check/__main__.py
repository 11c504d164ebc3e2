"""What `scripts/gpu-check` calls: check mt on a CUDA device, part by part, and write a report.

Each part is a process of its own with a time limit of its own, so that one that fails or hangs does not stop
the next. The report is written again after each part. Exit codes: 0 all passed, 1 some did not, 2 no CUDA
device.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from scripts.gpu_check.job import REPOSITORY, Job

NO_DEVICE = 2
GRACE_SECONDS = 5.0
"""A part for which less time is left is not started."""


@dataclass(frozen=True)
class Part:
    """One part of the check."""

    name: str
    title: str
    command: Sequence[str]
    """It prints Markdown; its exit code is 0 if all that it checks is as it should be."""
    limit_seconds: float


@dataclass(frozen=True)
class Result:
    """What became of a part."""

    part: Part
    outcome: str
    seconds: float
    text: str
    code: int | None
    """None if it was stopped, or never started."""


def parts(job: Job) -> list[Part]:
    """All parts, in their order."""
    # On a CPU nobody waits for it, and the machine may be busy.
    patience = 1 if job.device == "cuda" else 10
    return [
        Part("device", "Device", job.command("device"), 40 * patience),
        Part("agreement", "Losses and gradients beside the CPU", job.command("agreement"), 100 * patience),
        Part("steps", "Training steps beside Hugging Face Marian", job.command("steps"), 240 * patience),
        Part("packed", "Packed batches and a CUDA graph", job.command("packed"), 100 * patience),
        Part("gaps", "Gaps between kernels", job.command("gaps"), 60 * patience),
        Part("training", "Training, killing and resuming", job.command("training"), 260 * patience),
        Part(
            "translating",
            "Translating and evaluating beside the CPU",
            job.command("translating"),
            90 * patience,
        ),
    ]


def main() -> int:
    options = _arguments()
    # So that a part that is running is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = options.folder.resolve() / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    data = str(Path(options.data).resolve()) if Path(options.data).exists() else options.data
    job = Job(options.device, folder, data, options.src, options.tgt)
    chosen = [part for part in parts(job) if part.name in {"device", *(options.parts or [part.name])}]
    output = options.output or folder / "report.md"
    results = run_parts(chosen, job, until=time.monotonic() + 60 * options.minutes, output=output)
    if results[0].code == NO_DEVICE:
        print(f"gpu-check: {results[0].text.strip()}", file=sys.stderr)
        return NO_DEVICE
    print(output.read_text(encoding="utf-8"))
    print(f"gpu-check: written to {output}", file=sys.stderr)
    return 0 if all(result.code == 0 for result in results) else 1


def run_parts(chosen: Sequence[Part], job: Job, *, until: float, output: Path) -> list[Result]:
    """Run the parts one after the other, and write the report after each; no device ends it at once.

    Args:
        chosen: Which.
        job: On what.
        until: When all must be over, by `time.monotonic`.
        output: The report.
    """
    results: list[Result] = []
    for part in chosen:
        _say(f"{part.title} (at most {part.limit_seconds:.0f} s)")
        results.append(_run(part, job, limit_seconds=min(part.limit_seconds, until - time.monotonic())))
        _say(f"  {results[-1].outcome} after {results[-1].seconds:.0f} s")
        if results[-1].code == NO_DEVICE and part.name == "device":
            return results
        output.write_text(report(job, results), encoding="utf-8")
    return results


def report(job: Job, results: Sequence[Result]) -> str:
    """The results as Markdown."""
    lines = [f"# mt on {job.device}, {date.today()}", "", "| part | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {each.part.title} | {each.outcome} | {each.seconds:.0f} |" for each in results]
    for each in results:
        lines += ["", f"## {each.part.title}", "", each.text.strip() or "It has printed nothing."]
    return "\n".join(lines) + "\n"


def _run(part: Part, job: Job, *, limit_seconds: float) -> Result:
    """Run one part; whatever it has started is ended with it."""
    if limit_seconds < GRACE_SECONDS:
        return Result(part, "**not started**: no time was left", 0.0, "", None)
    log, printed = job.folder / f"{part.name}.log", job.folder / f"{part.name}.md"
    started = time.monotonic()
    with log.open("w") as errors, printed.open("w") as output:
        process = subprocess.Popen(
            part.command,
            cwd=REPOSITORY,
            env=job.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.monotonic() - started
    text = printed.read_text(encoding="utf-8", errors="replace")
    if code == NO_DEVICE and part.name == "device":
        return Result(part, "no device", seconds, log.read_text(), code)
    if code == 0:
        return Result(part, "passed", seconds, text, code)
    last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    text += f"\nThe end of {log}:\n\n```\n{last}\n```\n" if last else ""
    outcome = (
        f"**stopped** at its limit of {limit_seconds:.0f} s"
        if code is None
        else f"**failed** with code {code}"
    )
    return Result(part, outcome, seconds, text, code)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("agreement", "steps", "packed", "gaps", "training", "translating")
    add = parser.add_argument
    add(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="cpu tries the check itself, with small models",
    )
    add("--data", default="builtin:primer", help="a corpus as data.path takes it (default: %(default)s)")
    add("--src", default="en", help="the language translated from (default: %(default)s)")
    add("--tgt", default="de", help="the language translated to (default: %(default)s)")
    add("--parts", nargs="+", choices=names, help="these alone; translating needs the run of training")
    add("--minutes", type=float, default=9.5, help="when all must be over (default: %(default)s)")
    add("--folder", type=Path, default=REPOSITORY / "runs" / "gpu-check", help="for runs and logs")
    add("--output", type=Path, help="the report (default: report.md in a new folder in --folder)")
    return parser.parse_args()


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
