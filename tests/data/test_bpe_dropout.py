"""BPE-dropout against the library's own merging, and against the paper's algorithm followed word by word."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest

from mt.config.data import TokenizerConfig
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.pairs import EncodedSentences
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer

TEXTS = [
    "Two young, white males are outside near many bushes.",
    "Several men in hard hats are operating a giant pulley system.",
    "a little girl climbing into a wooden playhouse (again)... 12 + 345 = 357",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz; »ja«, ruft es: größer!",
    "<s> is text, and so are <0x0A>, ▁, Ġ and ☃☃.",
    "man manly manner manners mannered",
    # Letters and punctuation whose first bytes are the same.
    "قا قب قت قث قج ق، ق؟",
    "ルト ルナ ルハ ルヘ ルミ ル・ル・",
    "x",
]


@pytest.fixture(scope="module", params=["bpe", "bpe_metaspace"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(TEXTS * 3, TokenizerConfig(kind=request.param, max_size=420, min_frequency=2))


def make_dropout(tokenizer: Tokenizer, share: float, max_length: int = 1000) -> BpeDropout:
    return BpeDropout(tokenizer, share=share, max_length=max_length)


def encoded(tokenizer: Tokenizer, texts: Sequence[str] = TEXTS) -> EncodedSentences:
    return EncodedSentences.of(tokenizer.encode_batch(texts))


def cut(tokenizer: Tokenizer, share: float, seed: int = 1) -> list[list[int]]:
    sentences = make_dropout(tokenizer, share)(encoded(tokenizer), np.random.default_rng(seed))
    assert sentences.lengths.tolist() == [len(ids) + 1 for ids in sentences]
    return [ids.tolist() for ids in sentences]


def test_where_nothing_is_skipped_it_is_the_librarys_encoding(tokenizer: Tokenizer) -> None:
    assert cut(tokenizer, 0.0) == tokenizer.encode_batch(TEXTS)


def test_the_text_stays_the_same(tokenizer: Tokenizer) -> None:
    for share in (0.1, 0.5, 0.9):
        assert [tokenizer.decode(ids) for ids in cut(tokenizer, share)] == TEXTS


def test_cuts_follow_from_the_draws_alone(tokenizer: Tokenizer) -> None:
    assert cut(tokenizer, 0.3) == cut(tokenizer, 0.3)
    assert cut(tokenizer, 0.3) != cut(tokenizer, 0.3, seed=2)


def test_a_sentence_that_would_be_too_long_stays(tokenizer: Tokenizer) -> None:
    whole = encoded(tokenizer)
    longest = int(whole.lengths.max())
    free = make_dropout(tokenizer, 0.9)(whole, np.random.default_rng(1))
    bound = make_dropout(tokenizer, 0.9, longest)(whole, np.random.default_rng(1))
    stays = free.lengths > longest
    assert stays.any()
    assert not stays.all()
    for kept, old, new, cut_anew in zip(stays, whole, bound, free, strict=True):
        assert new.tolist() == (old if kept else cut_anew).tolist()
    for limit in {*free.lengths.tolist(), *(free.lengths - 1).tolist()}:
        bound = make_dropout(tokenizer, 0.9, limit)(whole, np.random.default_rng(1))
        expected = np.where(free.lengths <= limit, free.lengths, whole.lengths)
        assert bound.lengths.tolist() == expected.tolist()


def one_by_one(
    merges: Mapping[tuple[int, int], tuple[int, int]],
    word: Sequence[int],
    share: float,
    rng: np.random.Generator,
) -> Iterator[int]:
    """Algorithm 1 of the paper for a word of base symbols."""
    symbols = list(word)
    while True:
        possible = [
            (*merges[pair], place)
            for place, pair in enumerate(pairwise(symbols))
            if pair in merges and rng.random() >= share
        ]
        if not possible:
            return iter(symbols)
        _, both, place = min(possible, key=lambda merge: (merge[0], merge[2]))
        symbols[place : place + 2] = [both]


def test_cuts_are_as_frequent_as_the_papers(tokenizer: Tokenizer) -> None:
    """Of so many cuts of one word, none is more or less frequent by over four standard deviations.

    They are more than are made at a time.
    """
    share, times = 0.3, 5000
    ours = make_dropout(tokenizer, share)(encoded(tokenizer, ["manners"] * times), np.random.default_rng(1))
    (base,) = make_dropout(tokenizer, 1 - 1e-12)(encoded(tokenizer, ["manners"]), np.random.default_rng(1))
    rng = np.random.default_rng(2)
    merges = {(left, right): (rank, both) for rank, (left, right, both) in enumerate(tokenizer.merges())}
    theirs = [tuple(one_by_one(merges, base.tolist(), share, rng)) for _ in range(times)]
    found_ways, expected_ways = Counter(tuple(ids.tolist()) for ids in ours), Counter(theirs)
    ways = found_ways | expected_ways
    assert len(ways) > 5
    for way in ways:
        found, expected = found_ways[way], expected_ways[way]
        assert abs(found - expected) <= 4 * (found + expected) ** 0.5


@pytest.mark.parametrize("is_new", [True, False])
def test_what_stands_for_no_text_stays_where_it_is(tokenizer: Tokenizer, is_new: bool) -> None:
    """What is before and after a reserved id is segmented as if it were alone."""
    tokenizer = tokenizer.with_entries(["<to:de>", "<tag:own>"], is_new=is_new)
    direction, keep = tokenizer.reserved.values()
    parts = tokenizer.encode_batch(TEXTS)
    sentences = [[direction, *one, keep, keep, *other, keep] for one, other in pairwise(parts)]
    for share in (0.0, 0.5):
        new = make_dropout(tokenizer, share)(EncodedSentences.of(sentences), np.random.default_rng(1))
        for before, ids, (one, other) in zip(sentences, new, pairwise(TEXTS), strict=True):
            assert ids[0] == direction
            keeps = np.flatnonzero(ids == keep).tolist()
            assert keeps == [keeps[0], keeps[0] + 1, len(ids) - 1]
            assert tokenizer.decode(ids[1 : keeps[0]].tolist()) == one
            assert tokenizer.decode(ids[keeps[1] + 1 : -1].tolist()) == other
            assert share or ids.tolist() == before
