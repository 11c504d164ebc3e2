"""The options reach the batches: cut otherwise in training where the config says so, and nowhere else."""

from itertools import combinations
from pathlib import Path

import pytest

from mt.data.batches.dataset import encode_pairs
from mt.data.batches.stream import training_batches
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers, prepare
from mt.run_directory import RunDirectory
from mt.special_tokens import UNK_ID
from tests.fixture_types import MakeConfig


@pytest.mark.parametrize("kind", ["bpe", "bpe_metaspace"])
def test_bpe_dropout_cuts_both_sides_differently_in_each_epoch(kind: str, make_config: MakeConfig) -> None:
    options = (f"tokenizer.kind={kind}", "tokenizer.max_size=400", "tokenizer.min_frequency=1")

    def cuts(share: float, epoch: int, seed: int = 1) -> list[dict[str, list[int]]]:
        """How the text of each source and of each target is cut."""
        config = make_config(
            *options, "data.max_length=200", f"training.bpe_dropout={share}", f"training.seed={seed}"
        )
        corpus = load_corpus(config.data)
        tokenizers = make_tokenizers(corpus.train, config)
        pairs, _ = encode_pairs(corpus.train, *tokenizers, max_length=200)
        stream = training_batches(config, pairs, tokenizers, None)
        batches = [stream.batch_of(epoch, number) for number in range(len(stream.epoch(epoch).batches))]
        sides = zip(*(batch.sentences() for batch in batches), strict=True)
        return [
            {tokenizer.decode(ids): ids for batch in side for ids in batch}
            for side, tokenizer in zip(sides, tokenizers, strict=True)
        ]

    plain = cuts(0.0, 0)
    assert cuts(0.0, 1) == plain
    assert cuts(0.5, 0) == cuts(0.5, 0)
    others = [cuts(0.5, 0), cuts(0.5, 1), cuts(0.5, 0, seed=2)]
    for side in (0, 1):
        for one, other in combinations([plain, *others], 2):
            assert one[side].keys() == other[side].keys()
            num_changed = sum(ids != other[side][text] for text, ids in one[side].items())
            assert num_changed > 0.3 * len(plain[side])


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
