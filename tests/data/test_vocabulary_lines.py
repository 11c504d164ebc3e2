"""The vocabulary of a very large corpus is made from a part of it, evenly spread; that of others from all."""

import subprocess
import sys
import time

import datasets
import pytest

from mt.config.config import Config
from mt.data.line_facts import abbreviations, line_facts
from mt.data.prepare import make_tokenizers
from tests.fixture_types import MakeConfig
from tests.processes import Popen, environment

NUM_PAIRS = 60_000


@pytest.fixture(scope="module")
def pairs() -> datasets.Dataset:
    """Each source is a word of its own, so that the vocabulary tells which lines were read."""
    numbers = range(NUM_PAIRS)
    return datasets.Dataset.from_dict({"src": [f"s{i}" for i in numbers], "tgt": [f"t{i}" for i in numbers]})


def words(pairs: datasets.Dataset, config: Config) -> list[set[str]]:
    tokenizers = make_tokenizers(pairs, config)
    return [set(tokenizer.tokens(range(4, tokenizer.size))) for tokenizer in tokenizers]


@pytest.mark.parametrize("max_lines", [1, 7, 25_000])
def test_the_lines_are_spread_evenly(
    max_lines: int, pairs: datasets.Dataset, make_config: MakeConfig
) -> None:
    config = make_config(f"tokenizer.max_lines={max_lines}", "tokenizer.max_size=1000000")
    src, tgt = words(pairs, config)
    rows = sorted(int(word[1:]) for word in src)
    assert sorted(int(word[1:]) for word in tgt) == rows
    assert len(rows) == max_lines
    gaps = {after - before for before, after in zip(rows, [*rows[1:], NUM_PAIRS + rows[0]], strict=True)}
    assert gaps <= {NUM_PAIRS // max_lines, -(-NUM_PAIRS // max_lines)}


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "bpe_metaspace"])
def test_a_broken_line_costs_no_time_and_no_entries(
    kind: str, make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"src": ["the dog sees milk", "a child"] * 9, "tgt": ["der Hund sieht Milch", "ein Kind"] * 9}
    broken = ["x" * 1_000_000 + " the dog sees milk", "9" * 100_000, "-" * 100_000 + "a child"]
    config = make_config(f"tokenizer.kind={kind}", "tokenizer.max_size=300", "data.max_length=128")
    before = make_tokenizers(datasets.Dataset.from_dict(good), config)
    started = time.perf_counter()
    sides = {"src": good["src"] + broken, "tgt": good["tgt"] + ["der Hund", "ein", "Kind"]}
    after = make_tokenizers(datasets.Dataset.from_dict(sides), config)
    assert time.perf_counter() - started < 10
    # Once each, however often the text is read.
    assert "left out of the vocabulary: 3 words of" in caplog.text
    for old, new in zip(before, after, strict=True):
        assert set(old.tokens(range(old.size))) == set(new.tokens(range(new.size)))


def test_words_of_up_to_200_characters_are_learnt_and_others_counted_on_both_sides(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    sides = {"src": ["a" * 200, "b" * 201 + " c"], "tgt": ["d" * 201 + " " + "e" * 300, "f"]}
    assert words(datasets.Dataset.from_dict(sides), make_config()) == [{"a" * 200, "c"}, {"f"}]
    assert "left out of the vocabulary: 3 words of over 200 characters" in caplog.text


def test_pairs_that_cannot_fit_are_not_learnt_from(make_config: MakeConfig) -> None:
    sides = {"src": ["a b", "a b " + "c " * 14, "d"], "tgt": ["a", "e", "a " * 16]}
    src, tgt = words(datasets.Dataset.from_dict(sides), make_config("data.max_length=16"))
    assert (src, tgt) == ({"a", "b"}, {"a"})
    src, tgt = words(datasets.Dataset.from_dict(sides), make_config("data.max_length=17"))
    assert (src, tgt) == ({"a", "b", "c", "d"}, {"a", "e"})
    # Unless there are no others.
    alone = datasets.Dataset.from_dict({"src": ["a b c d"], "tgt": ["e"]})
    assert words(alone, make_config("data.max_length=4")) == [{"a", "b", "c", "d"}, {"e"}]


SIGNALLED = """
import random, signal, time
from mt.config.data import TokenizerConfig
from mt.data.tokenizers.train import train_tokenizer

def texts():
    chance = random.Random(1)
    for _ in range(20_000):
        yield "".join(chance.choices("абвгдежзийклмнопрстуфхцчшщъыьэюя", k=150))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    print(time.time() + 0.5, flush=True)

def stop(number, frame):
    raise SystemExit(3)

signal.signal(signal.SIGALRM, stop)
train_tokenizer(texts(), TokenizerConfig(kind="bpe"))
"""


def test_a_signal_is_answered_while_subwords_are_learnt() -> None:
    with Popen(
        [sys.executable, "-c", SIGNALLED], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 3
        assert time.time() - float(out) < 2


def test_abbreviations_are_learnt_from_stops_inside_lines() -> None:
    one_sentence = ["Dr. Weber sees Nr. 5.", "Is it for Dr. Huber?", "Dr. No has Nr. 7."] * 20
    assert abbreviations([*one_sentence, "The day was no. 3."]) == ["Dr", "Nr"]
    # The words that end sentences inside lines also end lines.
    several = [f"Dr. A{n} has a dog. He has a {word}." for n in range(40) for word in ("cat", "dog")]
    assert abbreviations(several) == ["Dr"]
    assert abbreviations(["See 5. and Nr. 7 here"] * 20) == ["Nr"]
    # Three and five times the stops per line are needed: 4 = 3 + 5 * 4 / 20.
    assert abbreviations(["Mr. A goes"] * 4 + ["a b"] * 16) == ["Mr"]
    assert abbreviations(["Mr. A goes"] * 4 + ["a b"] * 15) == []
    assert len(abbreviations([f"W{number}. is here" for number in range(501)] * 8)) == 500


def test_the_facts_of_a_large_corpus_are_those_of_lines_that_are_spread_evenly() -> None:
    lines = ["It is Nr. 7 here", "12 ?", "..."] * 33_334
    facts = line_facts(datasets.Dataset.from_dict({"src": lines, "tgt": lines}))
    # Every third of them, which all are alike.
    assert facts == {"abbreviations": ["Nr"], "lines_without_letters": 0}
    facts = line_facts(datasets.Dataset.from_dict({"src": lines[:300], "tgt": lines[:300]}))
    assert facts == {"abbreviations": ["Nr"], "lines_without_letters": 200}
