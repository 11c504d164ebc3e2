"""One side of one part: does what `tests.oracle.cases` lists with the mt on its path, and records it as JSON.

It works in the current folder, whose paths are the same on both sides. A name in the record may end in
``NAME -> HOW``; it must then have the value that BASE recorded for ``NAME``.
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
from tests.oracle.cases import (
    BUILTIN,
    COMMANDS,
    ORDERS,
    PROCESS_RUNS,
    RUNS,
    SOURCES,
    overrides,
    write_sources,
    write_tiny,
)  # fmt: skip

Record = dict[str, Any]

CLOCKS = {"minutes", "tokens_per_second", "seconds"}
STOP = 7
SHARED = Path("..")
"""What one side makes for both."""
UNKNOWN = {"Zorblax": "Sorblax", "quibbled": "quibbelte", "Ŵrexham": "Wrexham"}


def sha256(data: bytes) -> str:
    """The first digits of a SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def fingerprint(run: Path) -> Record:
    """What a run has learnt, counted and measured, read without any code of mt."""
    pointers = {name: (run / "checkpoints" / name).read_text().strip() for name in ("latest", "best")}
    newest = run / "checkpoints" / pointers["latest"]
    record: Record = dict(pointers)
    for name in ("model.safetensors", "training_state.safetensors"):
        record[name] = sha256((newest / name).read_bytes())
        tensors = sorted(load_file(newest / name).items())
        parts = [
            (key, tensor.dtype, tensor.shape, tensor.flatten().view(torch.uint8))
            for key, tensor in tensors
            if tensor.numel()
        ]
        record[f"{name}, tensors"] = sha256(
            b"".join(f"{part[:3]}".encode() + part[3].numpy().tobytes() for part in parts)
        )
    record["best model"] = sha256((run / "checkpoints" / pointers["best"] / "model.safetensors").read_bytes())
    record["training_state.json"] = repr(_timeless(json.loads((newest / "training_state.json").read_text())))
    record["metrics"] = repr(_timeless(json.loads((newest / "checkpoint.json").read_text())["metrics"]))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    record["metrics.jsonl"] = sha256(repr([_timeless(json.loads(line)) for line in lines]).encode())
    record["tokenizers"] = [sha256(path.read_bytes()) for path in sorted(run.glob("*_tokenizer.json"))]
    return record


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(child) for key, child in sorted(value.items()) if key not in CLOCKS}
    return value


def _train(run: Path, config: Path, *more: str) -> Record:
    train(load_config(config, list(more)), run)
    return fingerprint(run)


def weights() -> Record:
    """Runs in one go, and the same runs stopped and resumed."""
    record: Record = {}
    for name, text in RUNS.items():
        config, sets = Path("tiny.yaml"), overrides(text)
        record[name] = _train(Path("runs") / name, config, *sets)
        _train(Path("stopped") / name, config, *sets, f"training.max_steps={STOP}")
        record[f"{name} -> resumed"] = _train(Path("stopped") / name, config, *sets)
    return record


def begun() -> Record:
    """For `old`, by BASE: the same runs stopped."""
    for name, text in RUNS.items():
        run = SHARED / "begun" / name
        _train(run, Path("tiny.yaml"), *overrides(text), f"training.max_steps={STOP}")
    return {}


def old() -> Record:
    """Runs that BASE has begun, and runs of format 2 from long ago, continued."""
    record: Record = {}
    for name, text in RUNS.items():
        run = Path(shutil.copytree(SHARED / "begun" / name, Path("old") / name))
        record[name] = _train(run, Path("tiny.yaml"), *overrides(text))
    for name, steps in {"format_2": 612, "format_2_interrupted": 620}.items():
        folder = Path(shutil.copytree(SHARED / "golden" / name, name))
        more = f"data.path={folder / 'corpus'}", f"training.max_steps={steps}"
        record[name] = _train(folder / "run", folder / "run" / "config.yaml", *more)
    return record


def processes() -> Record:
    """Two processes by the command line, in one go, and stopped and resumed."""
    record: Record = {}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "mt"]
    for name, text in PROCESS_RUNS.items():
        for run, steps in (("whole", 30), ("stopped", STOP), ("stopped", 30)):
            path = Path("processes") / run / name
            sets = [
                word for each in (*overrides(text), f"training.max_steps={steps}") for word in ("--set", each)
            ]
            subprocess.run([*launch, "train", "--config", "tiny.yaml", "--run", path, *sets], check=True)
            record[name if run == "whole" else f"{name} -> resumed"] = fingerprint(path)
    return record


def models() -> Record:
    """For `translations`, by BASE: two models and the lines to translate."""
    config = Path("primer.yaml")
    _train(SHARED / "models" / "one", config)
    _train(SHARED / "models" / "two", config, "training.seed=2", "training.max_steps=150")
    sources = seams.splits(load_config(config, []))[0]["test"]["src"]
    lines, odd = (
        [],
        [
            "ﬁnd the Ｃat",
            "e\u0301clair 🙂",
            "\u202eעברית\u202c",
            "a\u200bb \u00a0 c",
            "½ ﷺ\ufeff",
            "日本語。",
        ],
    )
    for number, line in enumerate(sources[:1000]):
        words = line.split()
        match number % 20:
            case 1 | 9:
                words[number % len(words)] = list(UNKNOWN)[number % 3]
            case 5:
                words = [" " * (number % 3)]
            case 7:
                words.insert(1, odd[number // 20 % len(odd)])
            case 11:
                words = sources[number - 8 : number]
            case 13:
                words = [word.strip(".?!,") for each in sources[number - 6 : number] for word in each.split()]
        lines.append(" ".join(words))
    (SHARED / "models" / "lines.json").write_text(json.dumps(lines))
    return {}


def translations() -> Record:
    """The same lines by each kind of search, with scores."""
    lines: list[str] = json.loads((SHARED / "models" / "lines.json").read_text())
    short = [line for line in lines if len(line.split()) < 24]
    long = [line for line in lines if len(line.split()) >= 24]
    one, two = SHARED / "models" / "one", SHARED / "models" / "two"
    single, prefixes = seams.translator(one), ["Der", "", "Die alte Frau", "Zorblax"] * 250
    beam, few = Beam(5), lines[::4]
    return {
        name: [[[each.text, each.score, each.log_prob] for each in best] for best in found]
        for name, found in (
            ("greedy", single.n_best(lines)),
            ("beam 5", single.n_best(lines, strategy=beam)),
            ("beam 4 by the mean", single.n_best(few, strategy=Beam(4, 0.7, "mean"))),
            ("n-best", single.n_best(short, num_best=5, strategy=beam)),
            ("sampling", single.n_best(lines, strategy=Sampling(0.8, seed=3, top_k=20, top_p=0.9))),
            ("prefix", single.n_best(lines, prefixes=prefixes)),
            ("prefix, beam 3", single.n_best(few, prefixes=prefixes[: len(few)], strategy=Beam(3))),
            ("constraints", single.n_best(lines, constraints=Constraints(min_length=9, no_repeat_ngram=2))),
            ("constraints, beam 3", single.n_best(few, constraints=Constraints(min_length=9, no_repeat_ngram=1), strategy=Beam(3), max_length=14)),
            ("unknown words kept", single.n_best(few, keep_unk=True)),
            ("dictionary", seams.translator(one, dictionary=UNKNOWN).n_best(lines)),
            ("ensemble", seams.translator(one, others=[two]).n_best(lines)),
            ("ensemble, beam 3", seams.translator(one, others=[two]).n_best(few, strategy=Beam(3))),
            ("long lines", single.n_best(long, strategy=beam)),
        )
    }  # fmt: skip


def corpora() -> Record:
    """Splits of all sources, and batches with their ids."""
    record: Record = {}
    Path("sources").mkdir()
    os.chdir("sources")
    write_sources()
    for name, text in {**SOURCES, **BUILTIN}.items():
        try:
            splits, dropped = seams.splits(
                load_config(Path("../tiny.yaml"), ["data.path=text", *overrides(text)])
            )
        except MtError:
            record[name] = "refused"
            continue
        found = {
            split: (len(rows), _digest(zip(rows["src"], rows["tgt"], strict=True)))
            for split, rows in splits.items()
        }
        record[name] = {split: f"{count} pairs, {digest}" for split, (count, digest) in found.items()}
        record[name]["dropped"] = sorted(dropped.values())
    os.chdir("..")
    for name, (config, text) in ORDERS.items():
        Path("order.yaml").write_text(config)
        loaded, run = load_config(Path("order.yaml"), overrides(text)), Path("orders") / name
        record[f"batches: {name}"] = [_digest(seams.batches(loaded, run, epoch)) for epoch in range(3)]
        record[f"tokenizers: {name}"] = [
            sha256(path.read_bytes()) for path in sorted(run.glob("*.json")) if "tokenizer" in path.name
        ]
    return record


def _digest(items: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:16]


def commands() -> Record:
    """What each command prints, its exit code, and the names of the files that it writes."""
    record: Record = {}
    before = _files()
    for name, text in COMMANDS.items():
        done = subprocess.run(
            [sys.executable, "-m", "mt", *shlex.split(text)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        after = _files()
        said = [
            f"$ mt {text}",
            f"exit code {done.returncode}",
            "--- stdout",
            done.stdout,
            "--- stderr",
            done.stderr,
        ]
        record[name] = _masked(
            "\n".join(
                [
                    *said,
                    "--- files",
                    *(f"+ {file}" for file in sorted(after - before)),
                    *(f"- {file}" for file in sorted(before - after)),
                ]
            )
        )
        before = after
    return record


def _files() -> set[str]:
    return {
        re.sub(r"tfevents.*", "tfevents", str(path)) for path in Path().rglob("*") if path.parts[0] != "cache"
    }


def _masked(text: str) -> str:
    text = text.replace(str(Path.cwd()), "FOLDER")
    text = re.sub(r"\d+([.,:]\d+)*", "N", text)
    return re.sub(r"(?<=\S)[ ─━]+|[▁▂▃▄▅▆▇█]+", " ", text)


PARTS = {
    part.__name__: part for part in (weights, begun, old, processes, models, translations, corpora, commands)
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    # No power is cut here, and bf16 computes the same where it is slow.
    os.fsync = lambda descriptor: None
    capabilities = torch.cpu.get_capabilities()
    torch.cpu.get_capabilities = lambda: {**capabilities, "avx512_bf16": True}
    write_tiny()
    Path(sys.argv[2]).write_text(json.dumps(PARTS[sys.argv[1]](), ensure_ascii=False))
