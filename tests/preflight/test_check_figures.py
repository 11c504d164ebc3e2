"""What `mt check` counts in a text, against counts made by hand."""

from collections.abc import Sequence

import datasets
import numpy as np
import pytest
import sacrebleu

from mt.config.data import TokenizerConfig
from mt.data.batches.dataset import EncodedPairs, encode_pairs
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.preflight.layout import between, duration
from mt.preflight.text import (
    Unknown,
    count_unknown,
    describe_lengths,
    find_ceiling,
    measure_padding,
    num_running_words,
    spread,
)


def tokenizer_of(text: str) -> Tokenizer:
    return train_tokenizer([text], TokenizerConfig(min_frequency=1))


def pairs_of(src_lengths: Sequence[int], tgt_lengths: Sequence[int]) -> EncodedPairs:
    """Sentences of as many tokens, EOS included."""
    src, tgt = (["w " * (length - 1) for length in lengths] for lengths in (src_lengths, tgt_lengths))
    pairs = datasets.Dataset.from_dict({"src": src, "tgt": tgt})
    return encode_pairs(pairs, tokenizer_of("w"), tokenizer_of("w"), max_length=None)[0]


def test_unknown_words() -> None:
    tokenizer = tokenizer_of("a dog sees a cat .")
    # Running: a zebra sees a dog | the zebra . ; different: a zebra sees dog the .
    found = count_unknown(["a zebra sees a dog", "the zebra ."], tokenizer)
    assert found == Unknown(num_tokens=8, num_unknown_tokens=3, num_types=6, num_unknown_types=2)
    assert (found.share, found.share_of_types) == (3 / 8, 2 / 6)
    assert count_unknown(["", ""], tokenizer).share == 0


def test_the_ceiling_by_the_formula_of_bleu() -> None:
    tokenizer = tokenizer_of("one two three four five six seven")
    ceiling = find_ceiling(["one two three four five six seven eight"], tokenizer)
    # 7 of 8 words are right, 6 of 7 bigrams, 5 of 6 trigrams, 4 of 5 runs of four; no brevity.
    assert ceiling.bleu.value == pytest.approx(100 * (7 / 8 * 6 / 7 * 5 / 6 * 4 / 5) ** 0.25)
    assert "version:" in ceiling.bleu.signature
    assert (ceiling.num_changed, ceiling.num_lines) == (1, 1)


def test_the_ceiling_is_that_of_the_text_with_wrong_words() -> None:
    references = ["Ein Hund sieht  das Haus heute.", "Ein Zebra sieht das Haus im Wald."]
    tokenizer = tokenizer_of("Ein Hund sieht das Haus heute im Wald.")
    wrong = [references[0], references[1].replace("Zebra", "xyz")]
    ceiling = find_ceiling(references, tokenizer)
    assert ceiling.num_changed == 1
    assert ceiling.bleu.value == pytest.approx(sacrebleu.corpus_bleu(wrong, [references]).score)


def test_a_vocabulary_that_has_every_word_permits_everything() -> None:
    text = 'Sie sagte: "Das ist gut!" (wirklich?)'
    ceiling = find_ceiling([text], tokenizer_of(text))
    assert ceiling.bleu.value == pytest.approx(100)
    assert ceiling.num_changed == 0


def test_lengths() -> None:
    lengths = np.array([*[3] * 19, 40])
    found = describe_lengths(lengths)
    assert (found.mean, found.most, found.longest) == (97 / 20, 3, 40)
    assert describe_lengths(np.array([*[3] * 18, 39, 40])).most == 39


def test_padding_by_hand() -> None:
    pairs = pairs_of([2, 4, 3], [5, 1, 3])
    batches = [np.array([0, 1], dtype=np.int32), np.array([2], dtype=np.int32)]
    # Source: 2 x 4 and 1 x 3 positions for 9 tokens; target: 2 x 5 and 1 x 3 for 9.
    padding = measure_padding(pairs, batches)
    assert (padding.src, padding.tgt) == pytest.approx((2 / 11, 4 / 13))


def test_pairs_that_are_looked_at_are_spread_evenly() -> None:
    pairs = datasets.Dataset.from_dict({"src": list(map(str, range(10)))})
    assert spread(pairs, 10) is pairs
    assert spread(pairs, 5)["src"][:] == ["0", "2", "4", "6", "8"]
    assert spread(pairs, 3)["src"][:] == ["0", "3", "6"]


def test_running_words_of_many_pairs_are_estimated_from_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.preflight.text.PAIRS_COUNTED", 10)
    # Two or four words, and three: on an average side, 2.5 or 3.5.
    sources = ["a b"] * 50 + ["a b c d"] * 50
    assert num_running_words(datasets.Dataset.from_dict({"src": sources, "tgt": ["e f g"] * 100})) == 300
    # Each character counts where nothing separates words.
    assert num_running_words(datasets.Dataset.from_dict({"src": ["a b c d e"], "tgt": ["两只狗"]})) == 4


def test_times_in_a_suitable_unit() -> None:
    assert [duration(s) for s in (1.24, 119, 120, 7200, 172_800)] == [
        "1.2 seconds",
        "119.0 seconds",
        "2.0 minutes",
        "2.0 hours",
        "2.0 days",
    ]


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (0, 0, "about 0.0 seconds"),
        (50, 100, "50.0 to 100.0 seconds"),
        (100, 300, "100.0 seconds to 5.0 minutes"),
        (299.9, 300, "about 5.0 minutes"),
        (200, 300, "3.3 to 5.0 minutes"),
        (3600, 36_000, "60.0 minutes to 10.0 hours"),
    ],
)
def test_times_between(least: float, most: float, said: str) -> None:
    assert between(least, most) == said
