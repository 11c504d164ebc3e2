"""One side of one part: does what cases.yaml lists with the mt on its path, and records it as JSON.

It works in the current folder, whose paths are the same on both sides. A name in the record may end in
``NAME -> HOW``; its value must then be what BASE recorded for ``NAME``.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from mt import Beam, Constraints, MtError, Sampling, load_config, train
from tests.oracle import seams
from tests.oracle.cases import CASES, overrides, write_sources, write_tiny

Record = dict[str, Any]

CLOCKS = {"minutes", "tokens_per_second", "seconds"}
WITHDRAWN = {
    *("padding_share", "update_ratio", "skipped_share", "step_target_tokens", "loss_spike"),
    *("length_ratio", "unknown_share"),
}
"""Metrics that older revisions write too."""
STOP = "training.max_steps=7"
SHARED = Path("../..")
"""Where BASE puts what both sides use."""
TINY, PRIMER = Path("tiny.yaml"), Path("primer.yaml")
UNKNOWN = {"Zorblax": "Sorblax", "quibbled": "quibbelte", "Ŵrexham": "Wrexham"}
ODD = ["ﬁnd the Ｃat", "e\u0301clair 🙂", "\u202eעברית\u202c", "a\u200bb \u00a0 c", "½ ﷺ\ufeff", "日本語。"]


def digest(items: Iterable[object]) -> str:
    """The first digits of a SHA-256 of these items."""
    sha256 = hashlib.sha256()
    for item in items:
        sha256.update(item if isinstance(item, bytes) else repr(item).encode())
    return sha256.hexdigest()[:16]


def fingerprint(run: Path) -> Record:
    """What a run has learnt, counted and measured, read without any code of mt."""
    folder = run / "checkpoints"
    record: Record = {name: (folder / name).read_text().strip() for name in ("latest", "best")}
    newest, best = folder / record["latest"], folder / record["best"]
    for name in ("model.safetensors", "training_state.safetensors"):
        tensors = sorted(load_file(newest / name).items())
        record[name] = digest([(newest / name).read_bytes()])
        record[f"tensors of {name}"] = digest(
            part for key, tensor in tensors for part in (key, tensor.shape, tensor.numpy().tobytes())
        )
    record["best model"] = digest([(best / "model.safetensors").read_bytes()])
    record["training_state.json"] = _timeless((newest / "training_state.json").read_text())
    record["metrics"] = _timeless((newest / "checkpoint.json").read_text())["metrics"]
    points = map(_timeless, (run / "metrics.jsonl").read_text().splitlines())
    record["metrics.jsonl"] = digest(point for point in points if point["kind"] != "layers")
    record["tokenizers"] = [digest([path.read_bytes()]) for path in sorted(run.glob("*_tokenizer.json"))]
    return record


def _timeless(text: str) -> Any:
    """JSON without what the clock says and what was withdrawn."""

    def without_clocks(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return {name: value for name, value in sorted(pairs) if name not in CLOCKS | WITHDRAWN}

    return json.loads(text, object_pairs_hook=without_clocks)


def _train(run: Path, config: Path, text: str, *more: str) -> Record:
    train(load_config(config, [*overrides(text), *more]), run)
    return fingerprint(run)


def weights() -> Record:
    """Runs in one go, and the same runs stopped and resumed."""
    record: Record = {}
    for name, text in CASES["runs"].items():
        record[name] = _train(Path("runs") / name, TINY, text)
        _train(Path("stopped") / name, TINY, text, STOP)
        record[f"{name} -> resumed"] = _train(Path("stopped") / name, TINY, text)
    return record


def begun() -> Record:
    """For `old`, by BASE: the same runs stopped."""
    return {name: _train(SHARED / "begun" / name, TINY, text, STOP) for name, text in CASES["runs"].items()}


def old() -> Record:
    """Runs that BASE has begun, and runs of format 2 from long ago, continued."""
    record: Record = {}
    for name, text in CASES["runs"].items():
        run = Path(shutil.copytree(SHARED / "begun" / name, Path("old") / name))
        record[name] = _train(run, TINY, text)
    for name, steps in {"format_2": 612, "format_2_interrupted": 620}.items():
        folder = Path(shutil.copytree(SHARED / "golden" / name, name))
        more = f"data.path={folder / 'corpus'} training.max_steps={steps}"
        record[name] = _train(folder / "run", folder / "run" / "config.yaml", more)
    return record


def processes() -> Record:
    """Two processes by the command line, in one go, and stopped and resumed."""
    record: Record = {}
    options = "-m torch.distributed.run --standalone --nproc-per-node=2 -m -- mt train --config tiny.yaml"
    for name, text in CASES["process_runs"].items():
        for how, more in ((name, []), ("begun", [STOP]), (f"{name} -> resumed", [])):
            run = Path("processes") / (name if how == name else f"{name}, stopped")
            sets = [f"--set={each}" for each in (*overrides(text), *more)]
            subprocess.run([sys.executable, *options.split(), "--run", run, *sets], check=True)
            if how != "begun":
                record[how] = fingerprint(run)
    return record


def models() -> Record:
    """For `translations`, by BASE: two models, and the lines to translate."""
    folder = SHARED / "models"
    _train(folder / "one", PRIMER, "")
    _train(folder / "two", PRIMER, "training.seed=2 training.max_steps=150")
    sources: list[str] = list(seams.splits(load_config(PRIMER, []))[0]["test"]["src"])[:1000]
    lines = []
    for number, line in enumerate(sources):
        words = line.split()
        match number % 20:
            case 1 | 9:
                words[number % len(words)] = list(UNKNOWN)[number % 3]
            case 5:
                words = [" " * (number % 3)]
            case 7:
                words.insert(1, ODD[number // 20 % len(ODD)])
            case 11:
                words = sources[number - 8 : number]
            case 13:
                words = re.findall(r"\w+", " ".join(sources[number - 6 : number]))
        lines.append(" ".join(words))
    (folder / "lines.json").write_text(json.dumps(lines))
    return {}


def translations() -> Record:
    """The same lines by each kind of search, with scores."""
    folder = SHARED / "models"
    lines: list[str] = json.loads((folder / "lines.json").read_text())
    few, short = lines[::4], [line for line in lines if len(line.split()) < 24]
    long = [line for line in lines if line not in short]
    prefixes = ["Der", "", "Die alte Frau", "Zorblax"] * 250
    one = seams.translator(folder / "one")
    words = seams.translator(folder / "one", dictionary=UNKNOWN)
    both = seams.translator(folder / "one", others=[folder / "two"])
    strict, stricter = Constraints(min_length=9, no_repeat_ngram=2), Constraints(no_repeat_ngram=1)
    found = {
        "greedy": one.n_best(lines),
        "beam": one.n_best(lines, strategy=Beam(5)),
        "beam by the mean": one.n_best(few, strategy=Beam(4, 0.7, "mean")),
        "n-best": one.n_best(short, num_best=5, strategy=Beam(5)),
        "sampling": one.n_best(lines, strategy=Sampling(0.8, seed=3, top_k=20, top_p=0.9)),
        "prefix": one.n_best(lines, prefixes=prefixes),
        "prefix with a beam": one.n_best(few, prefixes=prefixes[:250], strategy=Beam(3)),
        "constraints": one.n_best(lines, constraints=strict),
        "constraints with a beam": one.n_best(few, constraints=stricter, strategy=Beam(3), max_length=14),
        "unknown words kept": one.n_best(few, keep_unk=True),
        "dictionary": words.n_best(lines),
        "ensemble": both.n_best(lines),
        "ensemble with a beam": both.n_best(few, strategy=Beam(3)),
        "long lines": one.n_best(long, strategy=Beam(5)),
    }
    return {
        name: [[[each.text, each.score, each.log_prob] for each in best] for best in all_best]
        for name, all_best in found.items()
    }


def corpora() -> Record:
    """The splits of all sources, and batches with their ids."""
    record: Record = {}
    Path("sources").mkdir()
    os.chdir("sources")
    write_sources()
    for name, text in {**CASES["sources"], **CASES["builtin"]}.items():
        try:
            splits, dropped = seams.splits(load_config(".." / TINY, ["data.path=text", *overrides(text)]))
        except MtError:
            record[name] = "refused"
            continue
        record[name] = {"dropped": sorted(dropped.values())} | {
            split: f"{len(rows)} pairs, {digest(zip(rows['src'], rows['tgt'], strict=True))}"
            for split, rows in splits.items()
        }
    os.chdir("..")
    for config, orders in CASES["orders"].items():
        for name, text in orders.items():
            run = Path("orders") / name
            loaded = load_config(Path(f"{config}.yaml"), overrides(text))
            record[f"batches: {name}"] = digest(seams.batches(loaded, run, 3))
            for tokenizer in sorted(run.glob("*_tokenizer.json")):
                record[f"{tokenizer.name}: {name}"] = digest([tokenizer.read_bytes()])
    return record


def commands() -> Record:
    """What each command prints, its exit code, and the names of the files that it writes."""
    record: Record = {}
    before = _files()
    for name, text in CASES["commands"].items():
        command = [sys.executable, "-m", "mt", *shlex.split(text)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        after = _files()
        files = [f"+ {file}" for file in sorted(after - before)] + [
            f"- {file}" for file in sorted(before - after)
        ]
        said = f"stdout:\n{done.stdout}\nstderr:\n{done.stderr}\nfiles:\n" + "\n".join(files)
        record[name] = f"$ mt {text}\nexit code {done.returncode}\n" + _masked(said)
        before = after
    return record


def _files() -> set[str]:
    paths = [str(path) for path in Path().rglob("*") if path.parts[0] != "cache"]
    return {re.sub(r"tfevents.*", "tfevents", path) for path in paths}


def _masked(text: str) -> str:
    """Without what the clock and the machine say, and without the width of tables, which follows from it."""
    text = re.sub(r"\d+([.,:]\d+)*", "N", text.replace(str(Path.cwd()), "FOLDER"))
    # How fast other programs let it be.
    text = re.sub(r"\n.*\bmachine\b.* busy.*", "", re.sub(r"about N|N to N", "N", text))
    return re.sub(r"(?<=\S)[ ─━]+|[▁▂▃▄▅▆▇█]+", " ", text)


PARTS = {
    each.__name__: each for each in (weights, begun, old, processes, models, translations, corpora, commands)
}

if __name__ == "__main__":
    # No power is cut here, and bf16 computes the same where it is slow.
    os.fsync = lambda fd: None
    capabilities = torch.cpu.get_capabilities()
    pretended: Any = lambda: {**capabilities, "avx512_bf16": True}  # noqa: E731
    torch.cpu.get_capabilities = pretended
    write_tiny()
    Path(sys.argv[2]).write_text(json.dumps(PARTS[sys.argv[1]](), ensure_ascii=False))
