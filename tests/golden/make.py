"""Make the golden runs of the present format: ``python tests/golden/make.py``, once for each format.

It trains tiny models on a few sentences, one to the end and one until SIGTERM in the middle of an epoch, and
keeps each run directory as training left it, with sentences and their translations beside it. What is there
already is never made again: that it still works is the point.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import torch

from mt.checkpoint.record import FORMAT_VERSION
from mt.config.load import load_config
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.training.progress import Progress
from mt.training.run import run_training
from mt.training.step import StepResult

GOLDEN = Path(__file__).parent
CONFIG = """\
data: {path: corpus, src: en, tgt: de, max_length: 12}
tokenizer: {min_frequency: 1}
model: {d_model: 8, num_heads: 2, d_ff: 16, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.01}
schedule: {learning_rate: 0.02, warmup_steps: 20}
training: {device: cpu, max_steps: 600, batch_tokens: 200, log_every_steps: 100}
validation: {every_steps: 600, num_samples: 1}
checkpoint: {every_steps: 600, keep: 1}
"""
# A moving average, guided alignment, dropout, and steps of three micro-batches, nine in an epoch.
INTERRUPTED_CONFIG = """\
data: {path: corpus, src: en, tgt: de, max_length: 12}
tokenizer: {min_frequency: 1}
model:
  {d_model: 8, num_heads: 2, d_ff: 16, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.02,
  bias: false}
schedule: {learning_rate: 0.02, warmup_steps: 20}
training:
  {device: cpu, max_steps: 1000, batch_tokens: 20, num_micro_batches: 3, log_every_steps: 100, ema_decay: 0.9,
  guided_alignment: 0.1, unknown_share: 0.01}
validation: {every_steps: 1000, num_samples: 1}
checkpoint: {every_steps: 1000, keep: 1}
"""
INTERRUPTED_AT = 605
SUBJECTS = {"the dog": "der Hund", "my aunt": "meine Tante", "Anna": "Anna", "a child": "ein Kind"}
VERBS = {"sees": "sieht", "buys": "kauft", "paints": "malt"}
OBJECTS = {"milk": "Milch", "the car": "das Auto", "two apples": "zwei Äpfel"}
ENDINGS = {".": ".", " today!": " heute!"}


def write_corpus(folder: Path) -> None:
    """72 pairs, six of them for validation and six for testing."""
    pairs = [
        (f"{s} {v} {o}{e}", f"{SUBJECTS[s]} {VERBS[v]} {OBJECTS[o]}{ENDINGS[e]}")
        for s in SUBJECTS
        for v in VERBS
        for o in OBJECTS
        for e in ENDINGS
    ]
    random.Random(1).shuffle(pairs)
    splits = {"validation": pairs[:6], "test": pairs[6:12], "train": pairs[12:]}
    folder.mkdir()
    for split, rows in splits.items():
        for column, language in enumerate(("en", "de")):
            text = "".join(row[column] + "\n" for row in rows)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")


@contextlib.contextmanager
def interrupted_after(step: int | None) -> Iterator[None]:
    """Let this process get SIGTERM while it takes ``step``."""
    show_step = Progress.step

    def interrupt(self: Progress, result: StepResult) -> None:
        show_step(self, result)
        if result.counters.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with patch.object(Progress, "step", interrupt):
        yield


def make(target: Path, config_text: str, *, stop_after: int | None = None) -> None:
    """Make one golden folder, unless it is there already."""
    if target.exists():
        print(f"{target} is there already, and stays as it is.")
        return
    with tempfile.TemporaryDirectory() as temporary, patch.dict(os.environ, MT_CACHE=f"{temporary}/cache"):
        folder = Path(temporary) / "golden"
        folder.mkdir()
        corpus = folder / "corpus"
        write_corpus(corpus)
        config_file = folder / "golden.yaml"
        config_file.write_text(config_text, encoding="utf-8")
        run = RunDirectory(folder / "run")
        with contextlib.chdir(folder), interrupted_after(stop_after):
            run_training(load_config(config_file), run)
        # Neither is needed to translate or to go on: the one tells of this machine, the other is large.
        run.log_file.unlink()
        shutil.rmtree(run.tensorboard_dir)
        sentences = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
        sentences += ["", *(corpus / "train.en").read_text(encoding="utf-8").splitlines()[:6]]
        translator = ModelTranslator.from_run(run, checkpoint="latest", device=torch.device("cpu"))
        translations = dict(zip(sentences, translator.translate(sentences), strict=True))
        expected = json.dumps(translations, indent=1, ensure_ascii=False)
        (folder / "translations.json").write_text(expected + "\n", encoding="utf-8")
        config_file.unlink()
        shutil.copytree(folder, target)


def main() -> None:
    """Make ``format_N`` and ``format_N_interrupted`` for the present N."""
    torch.set_num_threads(1)
    make(GOLDEN / f"format_{FORMAT_VERSION}", CONFIG)
    make(GOLDEN / f"format_{FORMAT_VERSION}_interrupted", INTERRUPTED_CONFIG, stop_after=INTERRUPTED_AT)


if __name__ == "__main__":
    main()
