"""Compares this checkout with a revision of it; no checksum is kept, because bits depend on the processor.

Both sides run the probes of this checkout, each with its own mt, in folders of the same form.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
ORACLE = Path("tests/oracle")
PARTS = ("weights", "old", "processes", "translations", "corpora", "commands", "crash")
FIRST_SEAMS = "44dd492"
"""The commit whose seams fit the revisions before it."""
MOST_LINES = 60
TOLERANCE = 1e-6
"""Of a score; everything else must be equal."""


class Job(NamedTuple):
    """A probe of one side, and the job that it waits for."""

    side: str
    name: str
    after: str | None = None


# Those that wait for others are started last.
JOBS = {
    "translations": [
        Job("base", "models"),
        *(Job(side, "translations", "models") for side in ("base", "here")),
    ],
    "old": [Job("base", "begun"), *(Job(side, "old", "begun") for side in ("base", "here"))],
    "crash": [Job("here", "crash")],
    **{
        part: [Job("base", part), Job("here", part)]
        for part in ("weights", "corpora", "commands", "processes")
    },
}


def git(*arguments: str) -> str:
    """What git answers."""
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout


def lay_out(base: Path, temporary: Path) -> None:
    """Give BASE the first seams if it has none, and copy what both sides use."""
    tools = temporary / "tools" / ORACLE
    shutil.copytree(ROOT / ORACLE, tools)
    (tools / "seams.py").unlink()
    if not (base / ORACLE / "seams.py").exists():
        (base / ORACLE).mkdir(exist_ok=True)
        text = git("show", f"{FIRST_SEAMS}:{ORACLE}/seams.py")
        (base / ORACLE / "seams.py").write_text(text)
    shutil.copytree(ROOT / "tests" / "golden", temporary / "golden")


def run(job: Job, root: Path, temporary: Path) -> float:
    """Run a probe in a folder of its own; the seconds that it took."""
    folder = temporary / job.side / job.name
    folder.mkdir(parents=True)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ},
        "PYTHONPATH": f"{temporary / 'tools'}{os.pathsep}{root}",
        "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0", "HF_HUB_OFFLINE": "1",
        "MT_CACHE": str(folder / "cache"), "MT_ENGINE": "torch",
        "LC_ALL": "C.UTF-8", "TZ": "UTC", "COLUMNS": "110",
    }  # fmt: skip
    began, record = time.monotonic(), temporary / job.side / f"{job.name}.json"
    module = ["tests.oracle.crash"] if job.name == "crash" else ["tests.oracle.probe", job.name]
    with (folder / "log").open("w") as log:
        code = subprocess.run(
            [sys.executable, "-m", *module, record], cwd=folder, env=environment, stdout=log, stderr=log
        ).returncode
    if code:
        raise SystemExit(f"{job.side}, {job.name}: exit code {code}\n{(folder / 'log').read_text()[-3000:]}")
    print(f"{job.side:5} {job.name:13} {time.monotonic() - began:6.0f} s", flush=True)
    return time.monotonic() - began


def run_all(parts: list[str], roots: dict[str, Path], temporary: Path) -> None:
    """Run the probes of these parts, two at a time; those that are two processes themselves one by one."""
    started: dict[str, Future[float]] = {}

    def start(job: Job, pool: ThreadPoolExecutor) -> Future[float]:
        def work() -> float:
            if job.after:
                started[job.after].result()
            return run(job, roots[job.side], temporary)

        started[job.name] = pool.submit(work)
        return started[job.name]

    for num_workers, chosen in ((2, [p for p in JOBS if p != "processes"]), (1, ["processes"])):
        with ThreadPoolExecutor(num_workers) as pool:
            jobs = [job for part in chosen if part in parts for job in JOBS[part]]
            futures = [start(job, pool) for job in sorted(jobs, key=lambda job: job.after is not None)]
            try:
                for future in as_completed(futures):
                    future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def same(expected: Any, actual: Any) -> bool:
    """Whether two records are equal, but for the last digits of a score."""
    if isinstance(expected, float) and isinstance(actual, float):
        return math.isclose(expected, actual, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    return bool(expected == actual)


def lines(value: Any) -> list[str]:
    """A record as lines, so that they can be compared one by one."""
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    return text.splitlines()


def differences(base: dict[str, Any], here: dict[str, Any]) -> dict[str, str]:
    """A unified diff for each name whose records differ."""
    found = {}
    for name in {**base, **here}:
        expected = base.get(name.split(" -> ")[0], "nothing")
        actual = here.get(name, "nothing")
        if not same(expected, actual):
            diff = list(unified_diff(lines(expected), lines(actual), "base", "here", n=1, lineterm=""))
            more = [f"... and {len(diff) - MOST_LINES} more lines"] if len(diff) > MOST_LINES else []
            found[name] = "\n".join([*diff[:MOST_LINES], *more])
    return found


def report(parts: list[str], allowed: list[str], temporary: Path) -> int:
    """Print the differences and the table; the number of differences that are not allowed."""
    rows, total = [], 0
    for part in parts:
        here = json.loads((temporary / "here" / f"{part}.json").read_text())
        base = temporary / "base" / f"{part}.json"
        found = differences(json.loads(base.read_text()) if base.exists() else here, here)
        for name, diff in found.items():
            print(f"\n{part}: {name}{' (allowed)' if name in allowed else ''}\n{diff}")
        different = len(found.keys() - set(allowed))
        total += different
        rows.append((part, len(here), len(here) - len(found), len(found) - different, different))
    print(f"\n{'part':13} compared  equal  allowed  different")
    for part, compared, equal, expected, different in rows:
        print(f"{part:13} {compared:8} {equal:6} {expected:8} {different:10}")
    return total


def main() -> int:
    """Compare; exit code 1 if anything differs that is not allowed."""
    parser = argparse.ArgumentParser(prog="tests/oracle/compare", description=__doc__)
    parser.add_argument("base", metavar="BASE", help="a revision, such as de2a521")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; repeatable")
    parser.add_argument("--allow", metavar="NAME", action="append", default=[], help="an expected difference")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    options = parser.parse_args()
    parts = [part for part in PARTS if part in (options.only or PARTS)]
    temporary = Path(tempfile.mkdtemp(prefix="oracle-"))
    base = temporary / "checkout"
    git("worktree", "add", "--detach", str(base), options.base)
    try:
        lay_out(base, temporary)
        run_all(parts, {"base": base, "here": ROOT}, temporary)
        return min(report(parts, options.allow, temporary), 1)
    finally:
        git("worktree", "remove", "--force", str(base))
        if options.keep:
            print(temporary)
        else:
            shutil.rmtree(temporary)


if __name__ == "__main__":
    sys.exit(main())
