import os
import random
import re
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from mt.builtin.primer import generate
from mt.builtin.primer.clause import Clause
from mt.builtin.primer.drawing import Drawing, triple
from mt.builtin.primer.generate import primer_pairs, primer_sentences, split_of
from mt.builtin.primer.lexicon import load_lexicon
from mt.builtin.primer.noun_phrase import pronoun
from mt.builtin.primer.patterns import PATTERNS
from mt.builtin.primer.sentence import Sentence, statement
from mt.errors import DataError

LEXICON = load_lexicon()


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Sentence]]:
    """The corpus in the sizes that it has by default."""
    sizes = {"train": 40_000, "validation": 500, "test": 1_000}
    return {split: list(primer_sentences(split, size, seed=1)) for split, size in sizes.items()}


def forms(texts: list[str]) -> Counter[str]:
    return Counter(form for text in texts for form in re.findall(r"\w+", text))


def english_and_german(sentences: list[Sentence]) -> tuple[list[str], list[str]]:
    return [sentence.english for sentence in sentences], [sentence.german for sentence in sentences]


def test_at_least_400_forms_a_side_and_none_is_rare(splits: dict[str, list[Sentence]]) -> None:
    for texts in english_and_german(splits["train"]):
        counts = forms(texts)
        assert len({form.lower() for form in counts}) >= 400
        assert min(counts.values()) >= 10


def test_every_form_of_validation_and_test_is_in_training(splits: dict[str, list[Sentence]]) -> None:
    known = [set(forms(texts)) for texts in english_and_german(splits["train"])]
    for split in ("validation", "test"):
        for texts, of_training in zip(english_and_german(splits[split]), known, strict=True):
            assert set(forms(texts)) <= of_training


def test_no_combination_of_subject_verb_and_object_is_in_two_splits(
    splits: dict[str, list[Sentence]],
) -> None:
    combinations = {
        split: {triple(part) for sentence in sentences for part in sentence.clauses} - {None}
        for split, sentences in splits.items()
    }
    assert combinations["train"].isdisjoint(combinations["test"])
    assert combinations["train"].isdisjoint(combinations["validation"])
    assert combinations["test"].isdisjoint(combinations["validation"])


def test_another_seed_keeps_the_splits() -> None:
    for sentence in primer_sentences("test", 300, seed=99):
        combinations = [triple(part) for part in sentence.clauses]
        assert {split_of(*combination) for combination in combinations if combination} <= {"test"}


def test_sentences_are_written_properly(splits: dict[str, list[Sentence]]) -> None:
    nouns = {
        form
        for n in LEXICON.nouns.values()
        for form in (n.german, n.oblique, n.plural, n.dative_plural)
        if form
    }
    for english, german, _ in splits["train"]:
        assert re.fullmatch(r"[A-Z][\w' ]*(, [\w' ]+)*[.?]", english), english
        assert re.fullmatch(r"[A-ZÄÖÜ][\w ]*(, [\w ]+)*[.?]", german), german
        assert "  " not in english + german
        assert english[-1] == german[-1]
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", english), english
        assert not re.search(r"\b(in|an|zu|von) dem\b|\bin das\b|\bzu der\b", german), german
        assert not re.search(r"[^,] (weil|dass|ob|obwohl|wenn|aber)\b", german), german
        # A noun is never written small; "jungen" is an adjective, too.
        assert not {word.capitalize() for word in german.split()[1:] if word.islower()} & nouns - {
            "Junge",
            "Jungen",
        }


def test_lengths_are_mostly_5_to_14_words(splits: dict[str, list[Sentence]]) -> None:
    lengths = [len(sentence.english.split()) for sentence in splits["train"]]
    assert sum(5 <= length <= 14 for length in lengths) > 0.9 * len(lengths)
    assert 4 <= min(lengths) <= max(lengths) <= 16


def test_pairs_are_distinct_and_the_same_for_the_same_seed() -> None:
    pairs = list(primer_pairs("train", 2_000, seed=3))
    assert len({english for english, _ in pairs}) == 2_000
    assert list(primer_pairs("train", 2_000, seed=3)) == pairs
    assert list(primer_pairs("train", 500, seed=3)) == pairs[:500]
    assert list(primer_pairs("train", 500, seed=4)) != pairs[:500]


def test_the_order_of_hashes_plays_no_part() -> None:
    program = (
        "from mt.builtin.primer.generate import primer_pairs; print(list(primer_pairs('train', 300, 5)))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    assert len(outputs) == 1


def assert_one_german_for_each_english(num_sentences: int) -> None:
    # Drawn without the generator, which would drop a second German sentence together with its English one.
    draw = Drawing(Random("any"), lambda *_: True)
    patterns = [pattern for pattern, weight in PATTERNS for _ in range(weight)]
    german_of: dict[str, str] = {}
    for _ in range(num_sentences):
        sentence = draw.choose(patterns)(draw)
        assert german_of.setdefault(sentence.english, sentence.german) == sentence.german, sentence.english


def test_one_german_sentence_for_each_english_one() -> None:
    assert_one_german_for_each_english(30_000)


@pytest.mark.slow
def test_one_german_sentence_for_each_of_very_many_english_ones() -> None:
    assert_one_german_for_each_english(500_000)


@pytest.mark.slow
def test_yields_a_million_distinct_pairs() -> None:
    assert sum(1 for _ in primer_pairs("train", 1_000_000, seed=1)) == 1_000_000


def test_repetitions_are_so_rare_that_there_must_be_millions() -> None:
    # Of n uniform draws from N, about n²/2N repeat one that was there. What is drawn often repeats more, so N
    # is larger than this says.
    draw = Drawing(Random("any"), lambda *_: True)
    [plain] = [pattern for pattern, _ in PATTERNS if pattern.__name__ == "plain"]
    drawn = [plain(draw).english for _ in range(10_000)]
    repeated = len(drawn) - len(set(drawn))
    assert len(drawn) ** 2 / (2 * max(repeated, 1)) > 500_000


def test_asking_for_more_than_there_is_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    only = statement(
        Clause(
            pronoun("I"),
            next(verb for verb in LEXICON.verbs if verb.lemma == "sleep"),
            "past",
            time=next(time for time in LEXICON.times if time.english == "last week"),
        )
    )
    monkeypatch.setattr(generate, "PATTERNS", ((lambda _: only, 1),))
    pairs = primer_pairs("train", 2, seed=1)
    assert next(pairs) == ("I slept last week.", "Ich habe letzte Woche geschlafen.")
    with pytest.raises(DataError, match=r"no 2 distinct pairs in its train split; ask for 1 or fewer"):
        next(pairs)


def test_the_global_random_generator_is_left_alone() -> None:
    random.seed(1)
    before = random.getstate()
    list(primer_pairs("test", 20, seed=1))
    assert random.getstate() == before
