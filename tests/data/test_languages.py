"""What the language of a side says about its text: its script."""

from collections.abc import Mapping
from pathlib import Path

import datasets
import pytest

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers
from mt.data.suspicions import corpus_warnings
from tests.fixture_types import MakeConfig

TEXTS = {
    "en": ["the dog sees a house", "a child buys milk", "my aunt paints the car"] * 5,
    "de": ["der Hund sieht ein Haus", "ein Kind kauft Milch", "meine Tante malt das Auto"] * 5,
    "ru": ["собака видит дом", "ребёнок покупает молоко", "моя тётя рисует машину"] * 5,
    "fa": ["سگ خانه را می‌بیند", "کودک شیر می‌خرد", "خاله‌ام ماشین را می‌کشد"] * 5,
    "part": ["собака видит дом", "моя тётя рисует машину", "a child buys milk"] * 5,
    "unseen": ["Hund one two three", "four five", "six"] * 5,
    "other": ["seven", "eight", "nine"] * 5,
}


def warnings(folder: Path, src: str, tgt: str, texts: Mapping[str, tuple[str, str]]) -> list[str]:
    for split in ("train", "validation", "test"):
        for language, written in zip((src, tgt), texts.get(split, (src, tgt)), strict=True):
            lines = "".join(f"{line}\n" for line in TEXTS[written])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    data = {"path": str(folder), "src": src, "tgt": tgt}
    config = Config.model_validate({"data": data, "training": {"max_steps": 1}})
    return list(corpus_warnings(config, load_corpus(config.data)))


def test_sides_in_their_scripts_are_not_warned_of(tmp_path: Path) -> None:
    for src, tgt in (("en", "de"), ("en", "ru"), ("fa", "ru")):
        assert warnings(tmp_path, src, tgt, {}) == []
    assert warnings(tmp_path, "en", "ru", {"train": ("en", "part")}) == []
    # A foreign word or two do not make a swapped side.
    assert warnings(tmp_path, "en", "de", {"test": ("unseen", "other")}) == []


@pytest.mark.parametrize(
    ("languages", "texts", "expected"),
    [
        (("en", "ru"), {"train": ("en", "de")}, "targets of the train split are not in Cyrillic script"),
        (("ru", "en"), {"test": ("fa", "en")}, "sources of the test split are not in Cyrillic script"),
        (("ru", "en"), dict.fromkeys(("train", "test"), ("fa", "en")), "of the train and test split are not"),
        # In one script.
        (("en", "de"), {"validation": ("de", "en")}, "of the validation split look swapped"),
    ],
)
def test_a_wrong_side_is_warned_of(
    languages: tuple[str, str], texts: dict[str, tuple[str, str]], expected: str, tmp_path: Path
) -> None:
    [warning] = warnings(tmp_path, *languages, texts)
    assert expected in warning
    assert "data.src" in warning


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "bpe_metaspace"])
@pytest.mark.parametrize("shared", [False, True])
def test_turkish_is_lower_cased_by_its_own_rule(kind: str, shared: bool, make_config: MakeConfig) -> None:
    turkish, english = "ISPARTA İZMİR IĞDIR diye", "IN THE INN"
    pairs = datasets.Dataset.from_dict({"src": [turkish] * 3, "tgt": [english] * 3})
    options = ("data.src=tr", "data.tgt=en", "tokenizer.lowercase=true", f"tokenizer.kind={kind}")
    config = make_config(*options, f"tokenizer.shared={str(shared).lower()}", "tokenizer.max_size=400")
    src, tgt = make_tokenizers(pairs, config)
    assert src.decode(src.encode(turkish)) == "ısparta izmir ığdır diye"
    assert src.encode("I\u0307zmir") == src.encode("izmir")
    assert tgt.decode(tgt.encode(english)) == "in the inn"


@pytest.mark.parametrize("end", ["\r", ""])
def test_a_file_with_the_line_ends_of_old_macs_is_read_as_lines(end: str, tmp_path: Path) -> None:
    for language in ("en", "de"):
        text = "\ufeff" + "\r".join(TEXTS[language]) + end
        (tmp_path / f"train.{language}").write_bytes(text.encode())
        for split in ("validation", "test"):
            (tmp_path / f"{split}.{language}").write_text("a b\n")
    corpus = load_corpus(DataConfig(path=str(tmp_path), src="en", tgt="de"))
    assert list(corpus.train["src"]) == TEXTS["en"]
    assert list(corpus.train["tgt"]) == TEXTS["de"]
