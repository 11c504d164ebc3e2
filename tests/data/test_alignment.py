"""The aligner against its formulas in plain loops, and on a language whose alignment is known."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from mt.data.batches import alignment
from mt.data.batches.alignment import NONE, Lexicon, align
from mt.data.batches.pairs import EncodedPairs, EncodedSentences

Pairs = Sequence[tuple[list[int], list[int]]]


def encoded(pairs: Pairs) -> EncodedPairs:
    return EncodedPairs(
        EncodedSentences.of([src for src, _ in pairs]), EncodedSentences.of([tgt for _, tgt in pairs])
    )


def aligned(pairs: EncodedPairs) -> list[list[int]]:
    """The places of each pair."""
    places = align(pairs)
    assert len(places) == len(pairs.tgt.ids)
    return [part.tolist() for part in np.split(places, pairs.tgt.offsets[1:-1])]


def lexicon_by_hand(pairs: Pairs, iterations: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Probabilities of (source word, target word), as the formulas of the module say, one cell at a time."""
    table = {(s, t): (1.0, 1.0) for src, tgt in pairs for s in src for t in tgt}
    num_words = max(sum(len(src) for src, _ in pairs), sum(len(tgt) for _, tgt in pairs))
    share = 0.08
    for _ in range(iterations):
        counts: defaultdict[tuple[int, int], float] = defaultdict(float)
        for src, tgt in pairs:
            prior = [
                [math.exp(-4 * abs((i + 0.5) / len(src) - (j + 0.5) / len(tgt))) for j in range(len(tgt))]
                for i in range(len(src))
            ]
            for i, s in enumerate(src):
                for j, t in enumerate(tgt):
                    of_tgt = sum(prior[k][j] for k in range(len(src)))
                    of_src = sum(prior[i][k] for k in range(len(tgt)))
                    picks_src = [
                        (1 - share) * prior[k][j] / of_tgt * table[src[k], t][0] for k in range(len(src))
                    ]
                    picks_tgt = [
                        (1 - share) * prior[i][k] / of_src * table[s, tgt[k]][1] for k in range(len(tgt))
                    ]
                    none = share / num_words
                    counts[s, t] += (
                        picks_src[i] / (sum(picks_src) + none) * picks_tgt[j] / (sum(picks_tgt) + none)
                    )
        of_s: defaultdict[int, float] = defaultdict(float)
        of_t: defaultdict[int, float] = defaultdict(float)
        for (s, t), count in counts.items():
            of_s[s] += count
            of_t[t] += count
        table = {(s, t): (count / of_s[s], count / of_t[t]) for (s, t), count in counts.items()}
    return table


def test_the_lexicon_is_that_of_the_formulas() -> None:
    generator = np.random.default_rng(1)
    pairs = [
        (generator.integers(4, 9, n).tolist(), generator.integers(4, 8, m).tolist())
        for n, m in generator.integers(1, 6, (12, 2)).tolist()
    ]
    expected = lexicon_by_hand(pairs, 5)
    lexicon = Lexicon.learn(encoded(pairs))
    assert len(lexicon.keys) == len(expected)
    both = lexicon.tgt_given_src.tolist(), lexicon.src_given_tgt.tolist()
    for key, *probabilities in zip(lexicon.keys.tolist(), *both, strict=True):
        assert probabilities == pytest.approx(expected[divmod(key, lexicon.tgt_vocab_size)], rel=1e-9)


def dictionary_language(num_pairs: int, seed: int = 2) -> tuple[Pairs, list[list[int]]]:
    """Word for word, s being 2 * s, but neighbours change places, and there are words without source."""
    generator = np.random.default_rng(seed)
    pairs, places = [], []
    for _ in range(num_pairs):
        src = generator.permutation(np.arange(10, 50))[: generator.integers(3, 10)].tolist()
        order = list(range(len(src)))
        at = int(generator.integers(0, len(src) - 1))
        order[at], order[at + 1] = order[at + 1], order[at]
        tgt, row = [2 * src[i] for i in order], list(order)
        at = int(generator.integers(0, len(tgt)))
        # A word that comes with anything, as particles do.
        pairs.append((src, [*tgt[:at], 5, *tgt[at:]]))
        places.append([*row[:at], NONE, *row[at:]])
    return pairs, places


def test_a_known_alignment_is_found() -> None:
    pairs, expected = dictionary_language(600)
    found = [place for row in aligned(encoded(pairs)) for place in row]
    right = [place for row in expected for place in row]
    links = [(place, truth) for place, truth in zip(found, right, strict=True) if truth != NONE]
    assert sum(place == truth for place, truth in links) > 0.98 * len(links)
    particles = [place for place, truth in zip(found, right, strict=True) if truth == NONE]
    assert sum(place == NONE for place in particles) > 0.7 * len(particles)


def test_many_pairs_are_aligned_a_few_at_a_time_by_what_a_part_of_them_teaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = encoded(dictionary_language(90)[0])
    expected = aligned(pairs)
    num_cells = sum(len(src) * len(tgt) for src, tgt in zip(pairs.src, pairs.tgt, strict=True))
    for at_a_time in (1, 100, 10 * num_cells):
        monkeypatch.setattr(alignment, "_CELLS_AT_A_TIME", at_a_time)
        assert aligned(pairs) == expected
    for most, step in ((num_cells, 1), (num_cells - 1, 2), (num_cells // 4 + 1, 4)):
        monkeypatch.setattr(alignment, "_MOST_CELLS", most)
        learnt = Lexicon.learn(pairs)
        monkeypatch.undo()
        of_part = Lexicon.learn(EncodedPairs(*pairs.select(np.arange(0, 90, step))))
        assert learnt.keys.tolist() == of_part.keys.tolist()
        assert learnt.tgt_given_src.tolist() == of_part.tgt_given_src.tolist()


def test_of_equally_good_source_words_the_first_is_the_counterpart() -> None:
    src, tgt = EncodedSentences.of([[5, 5], [7]] * 4), EncodedSentences.of([[6], [8]] * 4)
    assert align(EncodedPairs(src, tgt)).tolist() == [0, 0] * 4


def test_words_that_were_never_seen_together_are_not_aligned() -> None:
    seen = EncodedPairs(EncodedSentences.of([[5], [7]] * 4), EncodedSentences.of([[6], [8]] * 4))
    other = EncodedPairs(EncodedSentences.of([[5], [5]]), EncodedSentences.of([[6], [8]]))
    assert Lexicon.learn(seen).align(other, np.arange(2)).tolist() == [0, NONE]
