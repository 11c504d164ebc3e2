"""What languages say about the text of a side, and what its form says about how it was made."""

import random
from collections.abc import Mapping
from pathlib import Path

import datasets
import pytest

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers
from mt.data.suspicions import corpus_warnings, text_warnings
from tests.fixture_types import MakeConfig

SPLITS = ("train", "validation", "test")
TEXTS = {
    "en": ["the dog sees a house", "a child buys milk", "my aunt paints the car"] * 40,
    "de": ["der Hund sieht ein Haus", "ein Kind kauft Milch", "meine Tante malt das Auto"] * 40,
    "ru": ["собака видит дом", "ребёнок покупает молоко", "моя тётя рисует машину"] * 40,
    "fa": ["سگ خانه را می‌بیند", "کودک شیر می‌خرد", "خاله‌ام ماشین را می‌کشد"] * 40,
    "part": ["собака видит дом", "моя тётя рисует машину", "a child buys milk"] * 40,
    "unseen": ["Hund one two three", "four five", "six"] * 40,
    "other": ["seven", "eight", "nine"] * 40,
}


def warnings(folder: Path, src: str, tgt: str, texts: Mapping[str, tuple[str, str]]) -> list[str]:
    for split in SPLITS:
        for language, written in zip((src, tgt), texts.get(split, (src, tgt)), strict=True):
            lines = "".join(f"{line}\n" for line in TEXTS[written])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    data = {"path": str(folder), "src": src, "tgt": tgt}
    config = Config.model_validate({"data": data, "training": {"max_steps": 1}})
    return list(corpus_warnings(config, load_corpus(config.data)))


def test_sides_in_their_scripts_are_not_warned_of_unless_they_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for src, tgt in (("en", "de"), ("en", "ru"), ("fa", "ru")):
        assert warnings(tmp_path, src, tgt, {}) == []
    assert warnings(tmp_path, "en", "ru", {"train": ("en", "part")}) == []
    # A foreign word or two do not make a swapped side.
    assert warnings(tmp_path, "en", "de", {"test": ("unseen", "other")}) == []
    monkeypatch.setattr("mt.data.suspicions._FEWEST_PAIRS", 121)
    assert "validation split has 120 pairs: below 121" in warnings(tmp_path, "en", "de", {})[0]


@pytest.mark.parametrize(
    ("languages", "texts", "expected"),
    [
        (("en", "ru"), {"train": ("en", "de")}, "targets of the train split are not in Cyrillic script"),
        (("ru", "en"), {"test": ("fa", "en")}, "sources of the test split are not in Cyrillic script"),
        (("ru", "en"), dict.fromkeys(("train", "test"), ("fa", "en")), "of the train and test split are not"),
        # In one script.
        (("en", "de"), {"validation": ("de", "en")}, "of the validation split look swapped"),
        (("en", "de"), dict.fromkeys(SPLITS, ("de", "en")), "of the train split look swapped"),
        (("en", "xx"), dict.fromkeys(SPLITS, ("de", "en")), "of the train split look swapped"),
    ],
)
def test_a_wrong_side_is_warned_of(
    languages: tuple[str, str], texts: dict[str, tuple[str, str]], expected: str, tmp_path: Path
) -> None:
    [warning] = warnings(tmp_path, *languages, texts)
    assert expected in warning
    assert "data.src" in warning


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ('<seg id="1"> {} </seg>', "are each in a tag"),
        ('"The ""{}"" of yore"', "are quoted cells"),
        ("an un@@ known {}", "(@@), such as n@@: join them: sed"),
        ("\u2581a \u2581{}", "(\u2581), such as \u2581a: join them: sed"),
        ("{} .", "are tokenized"),
        ('"{}"', None),
        ("See ##, me@@home, 3 < 4 > 1 and {}.", None),
    ],
)
def test_text_in_the_form_of_another_tool_is_warned_of(form: str, says: str | None) -> None:
    lines = [form.format(line) for line in TEXTS["en"]]
    said = [*text_warnings({"train": [lines, lines]})]
    assert len(said) == (says is not None)
    assert all(text.startswith("100% of the lines of the train split") and str(says) in text for text in said)


@pytest.mark.parametrize(("shift", "where"), [(1, "1 line later"), (-2, "2 lines earlier"), (0, None)])
def test_pairs_that_are_shifted_from_some_line_on_are_warned_of(shift: int, where: str | None) -> None:
    draw = random.Random(1)
    src = ["a" * draw.randrange(20, 200) for _ in range(600)]
    tgt = [f"{text:<{len(text) + draw.randrange(20)}}" for text in src]
    moved = tgt[:200] + ["b"] * shift + tgt[200 + max(0, -shift) :] + ["b", "b"]
    said = [*text_warnings({"train": [src, moved[:600]]})]
    assert len(said) == (where is not None)
    assert all("67% of the pairs of the train split" in text and str(where) in text for text in said)
    # Pairs that have nothing to do with each other are not shifted.
    assert [*text_warnings({"train": [src, draw.sample(tgt, 600)]})] == []


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
