"""Make the golden run of the present format: ``python tests/golden/make.py``, once for each format.

It trains a tiny model on a few sentences and keeps the run directory as training left it, with sentences and
their translations beside it. What is there already is never made again: that it still works is the point.
"""

import contextlib
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from mt.checkpoint.record import FORMAT_VERSION
from mt.config.load import load_config
from mt.pipeline.train import run_training
from mt.pipeline.translator import Translator
from mt.run_directory import RunDirectory

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


def main() -> None:
    """Make ``format_N`` for the present N."""
    target = GOLDEN / f"format_{FORMAT_VERSION}"
    if target.exists():
        sys.exit(f"{target} is there already, and stays as it is.")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = folder / "corpus"
        write_corpus(corpus)
        config_file = folder / "golden.yaml"
        config_file.write_text(CONFIG, encoding="utf-8")
        run = RunDirectory(folder / "run")
        with contextlib.chdir(folder):
            run_training(load_config(config_file), run)
        # Neither is needed to translate or to go on: the one tells of this machine, the other is large.
        run.log_file.unlink()
        shutil.rmtree(run.tensorboard_dir)
        sentences = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
        sentences += ["", *(corpus / "train.en").read_text(encoding="utf-8").splitlines()[:6]]
        translations = Translator.from_run(run, device=torch.device("cpu")).translate(sentences)
        expected = json.dumps(dict(zip(sentences, translations, strict=True)), indent=1, ensure_ascii=False)
        (folder / "translations.json").write_text(expected + "\n", encoding="utf-8")
        config_file.unlink()
        shutil.copytree(folder, target)


if __name__ == "__main__":
    main()
