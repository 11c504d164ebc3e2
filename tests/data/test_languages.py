"""What the language of a side says about its text: its script."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.data.languages import language_warnings

TEXTS = {
    "en": ["the dog sees a house", "a child buys milk", "my aunt paints the car"] * 5,
    "de": ["der Hund sieht ein Haus", "ein Kind kauft Milch", "meine Tante malt das Auto"] * 5,
    "ru": ["собака видит дом", "ребёнок покупает молоко", "моя тётя рисует машину"] * 5,
    "fa": ["سگ خانه را می‌بیند", "کودک شیر می‌خرد", "خاله‌ام ماشین را می‌کشد"] * 5,
}


def warnings(folder: Path, src: str, tgt: str, texts: Mapping[str, tuple[str, str]]) -> list[str]:
    for split in ("train", "validation", "test"):
        for language, written in zip((src, tgt), texts.get(split, (src, tgt)), strict=True):
            lines = "".join(f"{line}\n" for line in TEXTS[written])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    config = DataConfig(path=str(folder), src=src, tgt=tgt)
    return list(language_warnings(config, load_corpus(config)))


def test_sides_in_their_scripts_are_not_warned_of(tmp_path: Path) -> None:
    for src, tgt in (("en", "de"), ("en", "ru"), ("fa", "ru")):
        assert warnings(tmp_path, src, tgt, {}) == []


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
