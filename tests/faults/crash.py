"""Kills a run at each of its writes, and flips bits in what it saved; afterwards it must end as if unbroken.

Nothing in here depends on how mt writes: any call that changes a name on the disk, opens a file to write or
has it written counts, inside the run directory.
"""

import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import mt
from tests.tiny import tiny_pairs

CONFIG = Path("tiny.yaml")
BEFORE, END = 3, 4
"""Steps of the run that is resumed again and again, and of the finished one."""
TINY = """
data: {path: corpus, src: en, tgt: de, max_length: 16}
cleaning: {unicode_form: none, invisible: keep}
tokenizer: {min_frequency: 1}
model: {d_model: 16, num_heads: 2, d_ff: 32, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.2}
schedule: {learning_rate: 0.01, warmup_steps: 5}
training: {device: cpu, max_steps: 30, batch_tokens: 150, log_every_steps: 4, ema_decay: 0.9}
validation: {every_steps: 1, num_samples: 1, batch_sentences: 8}
checkpoint: {every_steps: 1, keep: 2}
"""
SPLITS = {"train": slice(160), "validation": slice(160, 172), "test": slice(172, None)}
CLOCKS = {"minutes", "tokens_per_second", "seconds"}
Record = dict[str, Any]
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}


def session(run: Path, steps: int, watch: Callable[[str, Path], None] | None = None) -> int:
    """Train up to ``steps`` in a child of this process, which has imported everything; its exit status."""
    child = os.fork()
    if not child:
        os.dup2(os.open("crash.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        if watch:
            watch_writes(run.absolute(), watch)
        mt.train(mt.load_config(CONFIG, [f"training.max_steps={steps}"]), run)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watch_writes(run: Path, watch: Callable[[str, Path], None]) -> None:
    """Call ``watch`` before each write inside the run directory."""

    def inside(what: str, where: Any) -> None:
        path = (
            Path(f"/proc/self/fd/{where}").readlink() if isinstance(where, int) else Path(os.fsdecode(where))
        )
        # A path may count from an open folder, which is inside.
        if not path.is_absolute() or path.is_relative_to(run):
            watch(what, path)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            inside(event, arguments[0])

    def synced(descriptor: int) -> None:
        inside("os.fsync", descriptor)
        fsync(descriptor)

    fsync = os.fsync
    os.fsync = synced  # type: ignore[assignment]
    sys.addaudithook(hook)


def killing(run: Path, at: int, *, half: bool) -> Callable[[str, Path], None]:
    """Kill this process at the write of that number, perhaps with only half of what is new in the file."""
    count = itertools.count()
    sizes = {path.absolute(): path.stat().st_size for path in run.rglob("*")}

    def watch(what: str, path: Path) -> None:
        if next(count) == at:
            if half:
                os.truncate(path, (sizes.get(path, 0) + path.stat().st_size) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def writes(run: Path) -> list[str]:
    """The names of the writes of a session from `BEFORE` to `END`, which is then finished."""
    with Path("writes").open("w+") as file:

        def watch(what: str, path: Path) -> None:
            print(what, "folder" if path.is_dir() else "file", file=file, flush=True)

        assert session(run, END, watch) == 0
        file.seek(0)
        return file.read().splitlines()


def fingerprint(run: Path) -> Record:
    """What a run has learnt, counted and measured, read without any code of mt."""
    folder = run / "checkpoints"
    record: Record = {name: (folder / name).read_text().strip() for name in ("latest", "best")}
    newest, best = folder / record["latest"], folder / record["best"]
    files = [newest / "model.safetensors", newest / "training_state.safetensors", best / "model.safetensors"]
    for file in (*files, *sorted(run.glob("*_tokenizer.json"))):
        record[str(file.relative_to(run))] = hashlib.sha256(file.read_bytes()).hexdigest()
    record["training_state.json"] = _timeless((newest / "training_state.json").read_text())
    record["metrics"] = _timeless((newest / "checkpoint.json").read_text())["metrics"]
    record["metrics.jsonl"] = [_timeless(point) for point in (run / "metrics.jsonl").read_text().splitlines()]
    return record


def _timeless(text: str) -> Any:
    """JSON without what the clock says."""

    def without_clocks(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return {name: value for name, value in sorted(pairs) if name not in CLOCKS}

    return json.loads(text, object_pairs_hook=without_clocks)


def finished(run: Path) -> Record:
    """What an unbroken run has, and the names of its files, where it does not matter which steps are kept."""
    paths = [str(path.relative_to(run)) for path in run.rglob("*") if "tfevents" not in path.name]
    return {**fingerprint(run), "files": sorted({re.sub(r"step_\d+", "step", path) for path in paths})}


def main() -> None:
    """Record each trial under a name that says what the unbroken run must have been equal to.

    The arguments are the file for the record, and how many kills one is chosen of.
    """
    stride = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    Path("corpus").mkdir()
    for split, rows in SPLITS.items():
        for side, language in enumerate(("en", "de")):
            lines = [pair[side] + "\n" for pair in tiny_pairs()[rows]]
            Path(f"corpus/{split}.{language}").write_text("".join(lines), encoding="utf-8")
    CONFIG.write_text(TINY, encoding="utf-8")
    # Imports what the first optimizer of a process does, so that no child has to.
    torch.optim.AdamW([torch.zeros(1)])
    begun, unbroken = Path("begun"), Path("unbroken")
    assert session(begun, BEFORE) == 0
    shutil.copytree(begun, unbroken)
    names = writes(unbroken)
    record = {"unbroken": finished(unbroken)}
    trial = Path("trial")

    def end(name: str) -> None:
        code = session(trial, END)
        record[f"unbroken -> {name}"] = finished(trial) if code == 0 else {"exit code": code}
        shutil.rmtree(trial)

    for number, what in list(enumerate(names))[::stride]:
        for half in (False, True) if what == "os.fsync file" else (False,):
            shutil.copytree(begun, trial)
            assert session(trial, END, killing(trial, number, half=half)) == -signal.SIGKILL, what
            end(f"killed at write {number}, {what}{', half written' * half}")
    newest = begun / "checkpoints" / (begun / "checkpoints" / "latest").read_text().strip()
    for part, quarter in itertools.product(sorted(newest.iterdir()), range(4)):
        shutil.copytree(begun, trial)
        damaged = bytearray(part.read_bytes())
        damaged[len(damaged) * quarter // 4 + 7] ^= 1 << quarter
        (trial / part.relative_to(begun)).write_bytes(damaged)
        end(f"a bit flipped in {part.name}, {quarter} quarters in")
    Path(sys.argv[1]).write_text(json.dumps(record))


if __name__ == "__main__":
    main()
