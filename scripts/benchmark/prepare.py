"""What comes before measuring: the corpus as ids and as text, and the weights that all sides begin with."""

from pathlib import Path

import numpy as np
from safetensors.torch import save_file

from mt.config.data import DataConfig, TokenizerConfig
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.sampler import epoch_batches
from mt.data.corpus import load_corpus
from mt.data.tokenizers.train import train_tokenizer
from mt.sides import Sides
from mt.special_tokens import SPECIAL_TOKENS
from scripts.benchmark.session import Job
from scripts.benchmark.sides.mt_train import new_model
from scripts.benchmark.workload import Description, Ragged, Workload

MAX_LENGTH = 128
VOCABULARY_SIZE = 8_000
SEED = 1


def make_workload(
    folder: Path, *, data: str, src: str, tgt: str, num_pairs: int, batch_tokens: int
) -> Description:
    """Tokenizers, ids, batches, and the same as text for the toolkits that need text."""
    train = load_corpus(DataConfig(path=data, src=src, tgt=tgt, num_train_pairs=num_pairs)).train
    bpe = TokenizerConfig(kind="bpe", max_size=VOCABULARY_SIZE)
    sides = Sides(train_tokenizer(list(train["src"]), bpe), train_tokenizer(list(train["tgt"]), bpe))
    pairs, _ = encode_pairs(train, sides, max_length=MAX_LENGTH)
    batches = epoch_batches(
        pairs.src.lengths, pairs.tgt.lengths, batch_tokens=batch_tokens, seed=SEED, epoch=0
    )
    description = Description(
        # Not the path, which says where on this machine, but the corpus.
        corpus=f"{Path(data).name} {src}-{tgt}",
        src_vocabulary_size=sides.src.size,
        tgt_vocabulary_size=sides.tgt.size,
        batch_tokens=batch_tokens,
        seed=SEED,
        max_length=MAX_LENGTH,
        num_pairs=len(pairs),
    )
    src_ids, tgt_ids = (Ragged(side.ids.astype(np.int64), side.offsets) for side in (pairs.src, pairs.tgt))
    Workload(description, src_ids, tgt_ids, Ragged.of(list(batches))).save(folder)
    for name, ragged, size in (("src", src_ids, sides.src.size), ("tgt", tgt_ids, sides.tgt.size)):
        lines = [" ".join(map(str, ragged[i].tolist())) for i in range(len(ragged))]
        (folder / f"train.{name}").write_text("\n".join(lines) + "\n")
        words = map(str, range(len(SPECIAL_TOKENS), size))
        (folder / f"vocabulary.{name}").write_text("\n".join(words) + "\n")
    return description


def write_first_weights(job: Job) -> None:
    """Write the weights that all sides begin with."""
    save_file(new_model(job.size, job.workload.description).weights(), job.first_weights)
