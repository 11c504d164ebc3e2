"""Text as people write it: the changes of a text, and of the pairs of a run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mt.config.data import AsWrittenConfig, TokenizerConfig
from mt.data import as_written
from mt.data.batches.alignment import NONE
from mt.data.batches.kept_words import Pieces
from mt.data.batches.pairs import Ids
from mt.data.batches.transforms import realigned, transforms_of
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers, prepare
from mt.data.tokenizers.train import train_tokenizer
from mt.run_directory import RunDirectory
from mt.sides import Sides
from tests.fixture_types import MakeConfig

LINE = "A man isn't in a state-of-the-art house, he is outside."


@pytest.mark.parametrize(
    ("change", "text", "language", "expected"),
    [
        (as_written.in_capitals, "Straße, ich", "de", "STRASSE, ICH"),
        (as_written.in_capitals, "iyi ılık", "tr", "İYİ ILIK"),
        (as_written.in_capitals, "iyi", "en", "IYI"),
        (as_written.in_lower_case, "İYİ ILIK", "tr", "iyi ılık"),
        (as_written.in_title_case, LINE, "en", "A Man Isn't In A State-Of-The-Art House, He Is Outside."),
        (as_written.in_title_case, "iyi bir gün", "tr_TR", "İyi Bir Gün"),
        (as_written.in_capitals, "他是 123!", "zh", "他是 123!"),
    ],
)
def test_case(change: Callable[[str, str], str], text: str, language: str, expected: str) -> None:
    assert change(text, language) == expected


def test_punctuation_at_the_end() -> None:
    texts = {
        "A dog.": "A dog",
        "Is it?!": "Is it",
        "U.S. is big": "U.S. is big",
        "他是。": "他是",
        "a ...  ": "a",
    }
    for text, expected in texts.items():
        assert as_written.without_final_punctuation(text) == expected


def test_lines_are_joined_as_their_script_is_written() -> None:
    assert as_written.joined(["A dog.", "A cat."]) == "A dog. A cat."
    assert as_written.joined(["他是。", "她是。"]) == "他是。她是。"


def is_one_error(word: str, wrong: str) -> bool:
    """Whether a typing error makes the one of the other."""
    errors = {word[:at] + word[at + 1 :] for at in range(len(word))}
    errors |= {word[:at] + word[at] + word[at:] for at in range(len(word))}
    errors |= {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)}
    for at, letter in enumerate(word):
        errors |= {word[:at] + key + word[at + 1 :] for key in as_written.keys_beside(letter)}
    return wrong in errors


def test_typing_errors_are_of_four_kinds_in_about_a_tenth_of_the_words() -> None:
    generator = np.random.default_rng(1)
    line = "Wolves and foxes house nearby Qwerty"
    wrong, lengths = 0, set()
    for _ in range(500):
        words = as_written.with_typos(line, generator).split()
        assert len(words) == 6
        for word, typed in zip(line.split(), words, strict=True):
            assert word == typed or is_one_error(word, typed), (word, typed)
            wrong += word != typed
            lengths.add(len(typed) - len(word))
    # At least one a line; one of two equal letters that are swapped is no error.
    assert 500 <= wrong < 700
    assert lengths == {-1, 0, 1}
    assert as_written.with_typos("a 12 ? of", generator) == "a 12 ? of"


def test_keys_beside() -> None:
    beside = {"a": "qwsz", "G": "FHTYVB", "p": "ol", "q": "wa", "m": "njk", "ж": ""}
    assert {key: {*as_written.keys_beside(key)} for key in beside} == {
        key: {*of} for key, of in beside.items()
    }


def test_noise_has_three_kinds() -> None:
    generator = np.random.default_rng(1)
    lines = [as_written.noise(generator) for _ in range(60)]
    kinds = [line.startswith("https://www.") + 2 * line.isascii() for line in lines]
    assert {*kinds} == {0, 2, 3}
    assert len({*lines}) > 50


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    """A hundred pairs, each with its number, some without capitals; twenty of a further source."""
    for name, count in (("train", 100), ("validation", 5), ("test", 5)):
        for side, word in (("en", "house"), ("de", "Straße")):
            lines = [f"The {word} of man {number}." for number in range(count)]
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for side in ("en", "de"):
        (tmp_path / f"more.{side}").write_text("".join(f"more {number}.\n" for number in range(20)))
    return tmp_path


@pytest.mark.parametrize("name", [*AsWrittenConfig.model_fields])
def test_each_share_changes_so_many_pairs_and_nothing_that_is_held_out(
    name: str, make_config: MakeConfig, corpus_folder: Path
) -> None:
    given = {
        "upper": ("THE HOUSE OF MAN 7.", "THE STRASSE OF MAN 7."),
        "title": ("The House Of Man 7.", "The Straße Of Man 7."),
        "no_final_punctuation": ("The house of man 7", "The Straße of man 7"),
    }
    config = make_config(
        f"data.path={corpus_folder}",
        f"data.sources.more.path={corpus_folder}/more",
        f"as_written.{name}=0.4",
        "tokenizer.kind=bpe",
        "tokenizer.max_size=400",
        "data.max_length=200",
    )
    prepared = prepare(config, RunDirectory(corpus_folder), resuming=False)
    transforms = transforms_of(config, prepared.corpus, prepared.tokenizers)
    assert transforms is not None
    changed = []
    texts = [*zip(prepared.corpus.train["src"], prepared.corpus.train["tgt"], strict=True)]
    pairs = transforms(prepared.train, 1, 0)
    for row in range(len(pairs)):
        src, tgt = (
            tokenizer.decode(side[row].tolist())
            for tokenizer, side in zip(prepared.tokenizers, (pairs.src, pairs.tgt), strict=True)
        )
        if (src, tgt) != texts[row]:
            changed.append((row, src, tgt))
    assert 0.25 * len(texts) < len(changed) < 0.55 * len(texts)
    for row, src, tgt in changed:
        if row < 100 and name in given:
            assert (src, tgt) == tuple(text.replace("7", str(row)) for text in given[name])
        if name == "typos":
            assert tgt == texts[row][1]
        if name == "noise":
            assert src == tgt
        if name == "joined":
            # Neighbours, none of them of another source.
            end = row + src.count(".")
            assert 2 <= end - row <= 4
            assert end <= (100 if row < 100 else 120)
            assert (src, tgt) == tuple(" ".join(side) for side in zip(*texts[row:end], strict=True))


def test_what_a_teacher_wrote_is_not_changed(make_config: MakeConfig, corpus_folder: Path) -> None:
    own = (f"data.path={corpus_folder}", f"data.sources.more.path={corpus_folder}/more")
    prepared = prepare(make_config(*own, "as_written.noise=0.9"), RunDirectory(corpus_folder), resuming=False)
    config = make_config(*own, "as_written.noise=0.9", "data.write_tgt.run=teacher")
    transforms = transforms_of(config, prepared.corpus, prepared.tokenizers)
    assert transforms is not None
    changed = transforms(prepared.train, 1, 0)
    ids = [(changed.src[row].tolist(), prepared.train.src[row].tolist()) for row in range(len(changed))]
    assert all(new == old for new, old in ids[:100])
    assert any(new != old for new, old in ids[100:])


def test_without_shares_nothing_is_done(make_config: MakeConfig, corpus_folder: Path) -> None:
    config = make_config(f"data.path={corpus_folder}")
    prepared = prepare(config, RunDirectory(corpus_folder), resuming=False)
    assert transforms_of(config, prepared.corpus, prepared.tokenizers) is None


def test_a_script_without_case_is_not_changed(make_config: MakeConfig, corpus_folder: Path) -> None:
    (corpus_folder / "train.en").write_text("他 是\n" * 100, encoding="utf-8")
    config = make_config(f"data.path={corpus_folder}", "tokenizer.kind=char", "as_written.upper=0.9")
    corpus = load_corpus(config.data, config.cleaning)
    transforms = transforms_of(config, corpus, make_tokenizers(corpus.train, config))
    assert transforms is not None
    text = Sides(corpus.train["src"][3], corpus.train["tgt"][3])
    assert transforms.in_order[0].change(3, text, np.random.default_rng(1)) == text


@pytest.mark.parametrize("kind", ["bpe", "bpe_metaspace", "char"])
def test_each_piece_has_the_link_of_its_word(kind: str) -> None:
    texts = Sides("the big house is red", "das große Haus ist rot")
    lines = [*texts] * 5
    options = {"kind": kind, "max_size": 600, "min_frequency": 1}
    tokenizer = train_tokenizer(lines, TokenizerConfig.model_validate(options))
    before = Sides(*(np.array(tokenizer.encode(text), dtype=np.int32) for text in texts))
    after = Sides(*(np.array(tokenizer.encode(text.upper()), dtype=np.int32) for text in texts))

    def words(ids: Ids) -> list[int]:
        entries = tokenizer.tokens(ids.tolist())
        return [*np.cumsum([entry[0] in "▁Ġ" for entry in entries])]

    pieces = Sides(Pieces.of(tokenizer), Pieces.of(tokenizer))
    # Word by word, but the second word of the target has no link.
    old = np.array([NONE if word == 2 else words(before.src).index(word) for word in words(before.tgt)])
    new = realigned(pieces, old.astype(np.int32), before, after)
    assert len(after.tgt) > len(before.tgt)
    linked = [NONE if position == NONE else words(after.src)[position] for position in new]
    assert linked == [NONE if word == 2 else word for word in words(after.tgt)]
    # If a word has become two, no link is certain.
    two = before._replace(tgt=np.concatenate([before.tgt, before.tgt]))
    assert {*realigned(pieces, old.astype(np.int32), before, two).tolist()} == {NONE}
