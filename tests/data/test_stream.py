"""The options reach the batches: cut otherwise in training where the config says so, and nowhere else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.stream import training_batches
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers, prepare
from mt.run_directory import RunDirectory
from mt.special_tokens import PAD_ID, UNK_ID

MakeConfig = Callable[..., Config]


@pytest.mark.parametrize("kind", ["bpe", "bpe_metaspace"])
def test_bpe_dropout_cuts_both_sides(kind: str, make_config: MakeConfig) -> None:
    options = (f"tokenizer.kind={kind}", "tokenizer.max_size=400", "tokenizer.min_frequency=1")

    def num_tokens(share: float) -> tuple[int, int]:
        config = make_config(*options, "data.max_length=200", f"training.bpe_dropout={share}")
        corpus = load_corpus(config.data)
        tokenizers = make_tokenizers(corpus.train, config)
        pairs, _ = encode_pairs(corpus.train, *tokenizers, max_length=200)
        stream = training_batches(config, pairs, tokenizers, None)
        batches = [stream.take((0, step))[0][0] for step in range(stream.num_steps(0))]
        src = sum(int((batch.src_ids != PAD_ID).sum()) for batch in batches)
        return src, sum(batch.num_target_tokens for batch in batches)

    plain, cut = num_tokens(0.0), num_tokens(0.5)
    assert cut[0] > plain[0]
    assert cut[1] > plain[1]


@pytest.mark.parametrize(("kind", "hides_words"), [("word", True), ("bpe", False), ("bpe_metaspace", False)])
def test_subwords_are_aligned_like_words_but_never_unknown(
    kind: str, hides_words: bool, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(
        f"tokenizer.kind={kind}",
        f"tokenizer.max_size={10_000 if kind == 'word' else 400}",
        "training.guided_alignment=0.5",
        "training.unknown_share=0.9",
    )
    prepared = prepare(config, RunDirectory(tmp_path), resuming=False)
    tokenizers = prepared.tokenizers
    stream = training_batches(config, prepared.train, tokenizers, prepared.places)
    batch = stream.take((0, 0))[0][0]
    assert batch.alignment is not None
    assert (batch.alignment >= 0).any()
    assert bool((batch.src_ids == UNK_ID).any()) == hides_words
