"""A corpus, a config, and what of a finished run must be equal whatever happened on the way."""

import hashlib
import json
import logging
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.plugin_event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)
from tensorboard.util.tensor_util import make_ndarray  # type: ignore[import-untyped]

SUBJECTS = {"the dog": "der Hund", "a child": "ein Kind", "my aunt": "meine Tante", "Anna": "Anna"}
VERBS = {"sees": "sieht", "finds": "findet", "buys": "kauft", "paints": "malt"}
OBJECTS = {"a house": "ein Haus", "the car": "das Auto", "milk": "Milch", "two red apples": "zwei rote Äpfel"}
ENDINGS = {"!": "!", ".": ".", " today.": " heute."}
SPLITS = {"train": slice(150), "validation": slice(150, 170), "test": slice(170, None)}

# Dropout, two micro-batches a step, several epochs, rotation, and saves with and without a validation.
CONFIG = """\
data: {{path: "{corpus}", src: en, tgt: de, max_length: 16}}
tokenizer: {{min_frequency: 1}}
model: {{d_model: 32, num_heads: 2, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.2}}
schedule: {{learning_rate: 0.01, warmup_steps: 5}}
training: {{device: cpu, max_steps: {steps}, batch_tokens: 200, num_micro_batches: 2, log_every_steps: 1}}
validation: {{every_steps: 5, num_samples: 2, batch_sentences: 8}}
checkpoint: {{every_steps: 3, keep: 3}}
"""

# What the clock says differs from run to run.
CLOCKS = {"minutes", "tokens_per_second", "seconds"}

# That steps were taken twice, of which the second time counts, is what is to be expected here.
logging.getLogger("tensorboard").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Fingerprint:
    """What a finished run must have in common with one that nothing happened to."""

    weights: str
    """SHA-256 of the newest model.safetensors."""
    best: str
    """SHA-256 of the best."""
    training_state: str
    """Of optimizer, counters and position, but for the time taken."""
    metrics: str
    """Of metrics.jsonl, but for times and speeds."""
    curves: str
    """Of what TensorBoard shows, likewise."""
    files: frozenset[str]
    """Every name in the run, so that nothing is left over and nothing missing."""

    def differences(self, other: "Fingerprint") -> list[str]:
        """The names of the fields that differ."""
        return [
            field.name for field in fields(self) if getattr(self, field.name) != getattr(other, field.name)
        ]


def write_arena(folder: Path, *, steps: int) -> Path:
    """Write a small parallel corpus and the config of a run of ``steps`` steps; the config's path."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    parts = product(SUBJECTS.items(), VERBS.items(), OBJECTS.items(), ENDINGS.items())
    pairs = [
        (f"{s_en} {v_en} {o_en}{e_en}", f"{s_de} {v_de} {o_de}{e_de}")
        for (s_en, s_de), (v_en, v_de), (o_en, o_de), (e_en, e_de) in parts
    ]
    random.Random(1).shuffle(pairs)
    for split, rows in SPLITS.items():
        for column, language in enumerate(("en", "de")):
            lines = "".join(pair[column] + "\n" for pair in pairs[rows])
            (corpus / f"{split}.{language}").write_text(lines, encoding="utf-8")
    config = folder / "tiny.yaml"
    config.write_text(CONFIG.format(corpus=corpus, steps=steps), encoding="utf-8")
    return config


def fingerprint(run: Path) -> Fingerprint:
    """Read a finished run without any code of mt."""
    newest, best = [
        run / "checkpoints" / (run / "checkpoints" / pointer).read_text().strip()
        for pointer in ("latest", "best")
    ]
    return Fingerprint(
        weights=_sha256((newest / "model.safetensors").read_bytes()),
        best=_sha256((best / "model.safetensors").read_bytes()),
        training_state=_sha256(
            b"".join(_leaves(json.loads((newest / "training_state.json").read_text())))
            + (newest / "training_state.safetensors").read_bytes()
        ),
        metrics=_sha256(repr(_metrics(run / "metrics.jsonl")).encode()),
        curves=_sha256(repr(_curves(run / "tensorboard")).encode()),
        files=files_of(run),
    )


def files_of(run: Path) -> frozenset[str]:
    """Every file and folder of a run, steps left out, since who was stopped has saved others.

    TensorBoard's are left out as well: there is one for each session, whose name holds the time.
    """
    paths = [str(path.relative_to(run)) for path in run.rglob("*") if "tfevents" not in path.name]
    return frozenset(re.sub(r"/step_\d+", "/step", path) for path in paths)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _leaves(value: Any, path: str = "") -> Iterator[bytes]:
    """Every number and text in nested containers, each with the path to it."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key not in CLOCKS:
                yield from _leaves(child, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _leaves(child, f"{path}/{index}")
    else:
        yield f"{path} {value!r} ".encode()


def _metrics(file: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines]


def _curves(folder: Path) -> dict[str, list[tuple[int, object]]]:
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: [
            (
                event.step,
                None if "per_second" in tag else next(iter(make_ndarray(event.tensor_proto).flat), None),
            )
            for event in events.Tensors(tag)
        ]
        for tag in sorted(events.Tags()["tensors"])
    }
