"""Words that stay: in a share of pairs, a word and its translation become UNK, and the alignment follows."""

from dataclasses import replace

import numpy as np
import pytest

from mt.config.data import TokenizerConfig
from mt.data.batches.alignment import NONE, align
from mt.data.batches.kept_words import KeptWords, Pieces
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.data.batches.stream import training_batches
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.sides import Sides
from mt.special_tokens import UNK_ID
from tests.fixture_types import MakeConfig

WORDS = ["house", "tree", "river", "mountain", "window", "garden", "bottle", "doctor", "village", "thunder"]
SOURCES = [f"the {WORDS[i % 10]}, a ({WORDS[i * 7 % 10]}) {WORDS[i * 3 % 10]}." for i in range(60)]
# Each word has one translation, in the same place.
TARGETS = [line.replace("the ", "das ").replace(" a ", " ein ").upper() for line in SOURCES]


def tokenizers_of(kind: str) -> Sides[Tokenizer]:
    options = {"kind": kind, "max_size": 330, "min_frequency": 1}
    config = TokenizerConfig.model_validate(options)
    return Sides(train_tokenizer(SOURCES, config), train_tokenizer(TARGETS, config))


def kept(
    kind: str, share: float, seed: int = 1
) -> tuple[Sides[Tokenizer], EncodedPairs, EncodedPairs, list[list[int]]]:
    tokenizers = tokenizers_of(kind)
    pairs = EncodedPairs(
        EncodedSentences.of(tokenizers.src.encode_batch(SOURCES)),
        EncodedSentences.of(tokenizers.tgt.encode_batch(TARGETS)),
    )
    keep = KeptWords(share, Sides(*map(Pieces.of, tokenizers)))
    pairs = replace(pairs, src_positions=align(pairs))
    changed = keep(pairs, np.random.default_rng(seed))
    assert changed.src_positions is not None
    assert changed.src_positions.dtype == np.int16
    rows = [part.tolist() for part in np.split(changed.src_positions, changed.tgt.offsets[1:-1])]
    return tokenizers, pairs, changed, rows


@pytest.mark.parametrize("kind", ["word", "bpe", "bpe_metaspace", "char"])
def test_a_word_and_its_translation_stay_on_both_sides(kind: str) -> None:
    tokenizers, pairs, changed, links = kept(kind, 0.5)
    num_changed = 0
    for row, link in enumerate(links):
        src, tgt = changed.src[row].tolist(), changed.tgt[row].tolist()
        assert len(link) == len(tgt)
        assert src.count(UNK_ID) == tgt.count(UNK_ID)
        num_changed += UNK_ID in src
        # With the words that were taken it is the text again: all pieces of them, and the spaces before.
        numbers = [f"@{number}" for number in range(src.count(UNK_ID))]
        parts = tokenizers.src.decode(src, numbers).split()
        words = dict(zip(numbers, numbers, strict=True))
        for part, original in zip(parts, SOURCES[row].split(), strict=True):
            number = part.strip(".,()")
            assert part.replace(number, "") == original.replace(original.strip(".,()"), "")
            word = original.strip(".,()")
            words[number] = {"the": "DAS", "a": "EIN"}.get(word, word.upper())
        order = [link[index] for index, token in enumerate(tgt) if token == UNK_ID]
        assert all(src[position] == UNK_ID for position in order)
        taken = [words[f"@{src[:position].count(UNK_ID)}"] for position in order]
        written = tokenizers.tgt.decode(tgt, taken)
        assert written == TARGETS[row], (kind, row)
        if UNK_ID not in src:
            assert np.array_equal(changed.src[row], pairs.src[row])
    assert 0.3 * len(SOURCES) < num_changed < 0.7 * len(SOURCES)


def test_the_links_of_other_words_move_with_them() -> None:
    _, pairs, changed, links = kept("bpe", 0.6)
    old = [part.tolist() for part in np.split(align(pairs), pairs.tgt.offsets[1:-1])]
    for row, link in enumerate(links):
        before = [
            (target, pairs.src[row][position])
            for target, position in zip(pairs.tgt[row], old[row], strict=True)
            if position != NONE
        ]
        after = [
            (target, changed.src[row][position])
            for target, position in zip(changed.tgt[row], link, strict=True)
            if position != NONE and target != UNK_ID
        ]
        # What is left is a part of what was there, in its order.
        rest = iter(before)
        assert all(pair in rest for pair in after)
        assert len(after) > 2


def test_other_words_stay_in_each_epoch_and_with_each_seed(make_config: MakeConfig) -> None:
    tokenizers, pairs, _, _ = kept("bpe", 0.5)
    options = ("tokenizer.kind=bpe", "training.guided_alignment=0.5", "training.keep_share=0.5")
    drawn = []
    for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0)):
        config = make_config(*options, f"training.seed={seed}")
        stream = training_batches(config, pairs, tokenizers)
        of_epoch = stream.epoch(epoch)
        drawn.append(of_epoch.pairs.src.ids.tolist())
        # The lengths, and so the batches and the sum of the loss, are those of what is left.
        assert stream.num_target_tokens(epoch) == int(of_epoch.pairs.tgt.lengths.sum())
        assert stream.take((epoch, 0)).micro_batches[0].alignment is not None
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2] != drawn[3] != drawn[0]
    without = make_config(*options[:2])
    assert training_batches(without, pairs, tokenizers).epoch(0).pairs is pairs
