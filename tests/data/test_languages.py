"""What languages say about the text of a side, and what its form says about how it was made."""

import random
from collections.abc import Mapping
from pathlib import Path

import datasets
import pytest

from mt.config.config import Config
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers
from mt.data.suspicions import (
    corpus_warnings,
    sample_of,
    small_splits,
    text_it_lacks,
    text_warnings,
)
from mt.data.text_form import TextForm
from mt.data.unsegmented_scripts import split_letters
from tests.data.corpora import data_config, parallel, write
from tests.fixture_types import MakeConfig

SPLITS = ("train", "validation", "test")
LEARNT = dict.fromkeys(SPLITS, ("en", "de"))
TEXTS = {
    "en": ["the dog sees a house", "a child buys milk", "my aunt paints the car"] * 40,
    "de": ["der Hund sieht ein Haus", "ein Kind kauft Milch", "meine Tante malt das Auto"] * 40,
    "ru": ["собака видит дом", "ребёнок покупает молоко", "моя тётя рисует машину"] * 40,
    "fa": ["سگ خانه را می‌بیند", "کودک شیر می‌خرد", "خاله‌ام ماشین را می‌کشد"] * 40,
    "zh": ["狗看见一座房子", "孩子买牛奶", "我的姑姑画汽车"] * 40,
    "part": ["собака видит дом", "моя тётя рисует машину", "a child buys milk"] * 40,
    "unseen": ["Hund one two three", "four five", "six"] * 40,
    "other": ["seven", "eight", "nine"] * 40,
}


def warnings(
    folder: Path, src: str, tgt: str, texts: Mapping[str, tuple[str, str]], **tokenizer: object
) -> list[str]:
    for split in SPLITS:
        of_src, of_tgt = (TEXTS[written] for written in texts.get(split, (src, tgt)))
        write(folder, parallel(split, list(zip(of_src, of_tgt, strict=True)), (src, tgt)))
    data = data_config(folder, src=src, tgt=tgt)
    config = Config.model_validate({"data": data, "training": {"max_steps": 1}, "tokenizer": tokenizer})
    return list(corpus_warnings(config, load_corpus(config.data)))


def test_sides_in_their_scripts_are_not_warned_of_unless_they_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for src, tgt in (("en", "de"), ("en", "ru"), ("fa", "ru")):
        assert warnings(tmp_path, src, tgt, {}) == []
    assert warnings(tmp_path, "en", "ru", {"train": ("en", "part")}) == []
    # A foreign word or two do not make a swapped side.
    assert warnings(tmp_path, "en", "de", {"test": ("unseen", "other")}) == []
    for fewest, num_warnings in ((120, 0), (121, 2)):
        monkeypatch.setattr("mt.data.suspicions._FEWEST_PAIRS", fewest)
        said = warnings(tmp_path, "en", "de", {})
        assert len(said) == num_warnings
        assert all("split has 120 pairs: below 121" in text and text.endswith("Add pairs.") for text in said)
    carved = write(tmp_path / "carved", parallel("train", [(f"a {i}", f"ein {i}") for i in range(200)]))
    said = [*small_splits(load_corpus(data_config(carved, held_out_fraction=0.2)))]
    assert [text.split()[1] for text in said] == ["validation", "test"]
    assert all(text.endswith("Add pairs, or raise data.held_out_fraction.") for text in said)


def test_what_a_kind_of_tokenizer_loses_is_said(tmp_path: Path) -> None:
    hint = "zh: an unsegmented script has no spaces between words"
    for src, tgt in (("en", "zh"), ("zh", "en")):
        [said] = warnings(tmp_path, src, tgt, {})
        assert said.startswith(hint)
        assert "use tokenizer.kind: bpe_metaspace" in said
        assert warnings(tmp_path, src, tgt, {}, kind="char", max_size=300) == []
    [both] = warnings(tmp_path, "zh", "ja", dict.fromkeys(SPLITS, ("zh", "zh")))
    assert both.startswith("zh and ja: an unsegmented script")
    assert warnings(tmp_path, "en", "de", {}, lowercase=True) == [
        "tokenizer.lowercase: the model reads and writes lower case only"
    ]


@pytest.mark.parametrize(
    ("languages", "texts", "expected"),
    [
        (("en", "ru"), {"train": ("en", "de")}, "targets of the train split are not in Cyrillic script"),
        (("ru", "en"), {"test": ("fa", "en")}, "sources of the test split are not in Cyrillic script"),
        (("ru", "en"), dict.fromkeys(("train", "test"), ("fa", "en")), "sources of the train split are not"),
        # In one script.
        (("en", "de"), {"validation": ("de", "en")}, "of the validation split look swapped"),
        (("en", "de"), dict.fromkeys(SPLITS, ("de", "en")), "of the train split look swapped"),
        (("en", "xx"), dict.fromkeys(SPLITS, ("de", "en")), "of the train split look swapped"),
        # Without known words, those of the training split tell the sides apart.
        (("yy", "xx"), {**LEARNT, "test": ("de", "en")}, "of the test split look swapped"),
        # Of a language in a country, and if most lines are in another script, but not all.
        (("EN_us", "RU-ru"), LEARNT, "script, in which ru is written"),
        (("en", "de"), {"test": ("en", "part")}, "targets of the test split are not in Latin script"),
    ],
)
def test_a_wrong_side_is_warned_of(
    languages: tuple[str, str], texts: dict[str, tuple[str, str]], expected: str, tmp_path: Path
) -> None:
    [warning] = warnings(tmp_path, *languages, texts)
    assert expected in warning
    assert "data.src" in warning


def test_each_source_is_compared_with_its_own_languages(tmp_path: Path) -> None:
    for split in SPLITS:
        write(tmp_path, parallel(split, list(zip(TEXTS["en"], TEXTS["de"], strict=True))))
    write(tmp_path / "ru", parallel("train", list(zip(TEXTS["en"], TEXTS["ru"], strict=True)), ("en", "ru")))
    back = {"path": str(tmp_path), "src": "de", "tgt": "en"}
    others = {"back": back, "en-ru": {"path": str(tmp_path / "ru"), "tgt": "ru"}}

    def said(**sources: object) -> list[str]:
        data = data_config(tmp_path, sources=others | sources)
        config = Config.model_validate({"data": data, "training": {"max_steps": 1}})
        return list(corpus_warnings(config, load_corpus(data)))

    assert said() == []
    swapped = back | {"columns": "en,de"}
    assert said(back=swapped) == [
        "source and target of the back train split look swapped: check data.sources.back.src, "
        "data.sources.back.tgt, data.sources.back.columns and the names of the files."
    ]
    [of_script] = said(bad={"path": str(tmp_path / "ru"), "tgt": "fr", "columns": "en,ru"})
    assert of_script.startswith("most targets of the bad train split are not in Latin script, in which fr is")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ('<seg id="1"> {} </seg>', "are each in a tag"),
        ('"The ""{}"" of yore"', "are quoted cells"),
        ("an un@@ known {}", "(@@), such as n@@: join them: sed"),
        ("\u2581a \u2581{}", "(\u2581), such as \u2581a: join them: sed"),
        ("{} .", "are tokenized"),
        ("<p> {{}} </p> <br>", None),
        ("<p>", "are tags, such as <p>: take them out of both sides"),
        ("&lt;{}&#39;", "HTML's names of characters, such as &lt;: set cleaning.unescape_html"),
        ('"{}"', None),
        ("See ##, me@@home, 3 < 4 > 1 and {}.", None),
    ],
)
def test_text_in_the_form_of_another_tool_is_warned_of(form: str, says: str | None) -> None:
    lines = [form.format(line) for line in TEXTS["en"]]
    said = [*text_warnings({"train": [lines, lines]})]
    assert len(said) == (says is not None)
    assert all(text.startswith("100% of the lines of the train split") and str(says) in text for text in said)


@pytest.mark.parametrize(("form", "percent"), [("Tom &amp; {}", 1), ("kno@@ wn {}", 5), ("{} .", 50)])
def test_a_form_is_warned_of_in_more_lines_than_there_are_by_accident(form: str, percent: int) -> None:
    lines = [*TEXTS["en"], *TEXTS["en"]][:200]

    def said(percent: int) -> list[str]:
        number = percent * 2
        changed = [form.format(line) for line in lines[:number]] + lines[number:]
        return [*text_warnings({"train": [changed, changed], "test": [lines, lines]})]

    assert said(percent) == []
    [warning] = said(percent + 1)
    assert warning.startswith(f"{percent + 1}% of the lines of the train split ")
    # All splits, and both sides of each, are looked at.
    changed = [form.format(line) for line in lines]
    [warning] = text_warnings({"train": [lines, lines], "test": [lines, changed], "dev": [changed, changed]})
    both = "100% of the lines of the dev split"
    assert warning.startswith(both if percent == 50 else f"50% of the lines of the test split and {both}")


def test_the_sample_is_stretches_of_neighbours_that_are_spread_evenly() -> None:
    for num_pairs, step in ((9_000, 400), (250, 100)):
        sides = {
            "src": [f"{i}\u200b" for i in range(num_pairs)],
            "tgt": [f"{i} {'x' * 999}" for i in range(num_pairs)],
        }
        src, tgt = sample_of(datasets.Dataset.from_dict(sides), TextForm(invisible="drop"))
        rows = [row for row in range(num_pairs) if row % step < 100]
        assert src == [str(row) for row in rows]
        # Only the beginnings are looked at.
        assert tgt == [f"{row} {'x' * 999}"[:1000] for row in rows]
    [said] = text_warnings({"train": [["<p>", "<b>"], ["a", "b"]]})
    assert said.startswith("50% of the lines of the train split are tags, such as <p>: ")


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


def test_letters_of_unsegmented_scripts_are_split() -> None:
    assert split_letters("a中，b c") == "a 中  ， b c"


def test_what_people_write_and_the_text_lacks_is_named(tmp_path: Path) -> None:
    def lacking(lines: list[str], **added: float) -> str:
        for split in SPLITS:
            write(tmp_path, parallel(split, [(line, "ein Satz .") for line in lines]))
        sections = {"data": data_config(tmp_path), "training": {"max_steps": 1}, "as_written": added}
        config = Config.model_validate(sections)
        [*sentences] = text_it_lacks(config, load_corpus(config.data))
        assert len(sentences) <= 1
        return "".join(sentences).partition(": ")[2].partition(". What")[0]

    full = ["The dog is old. It sleeps.", "Is it old?", "the end", "A cat."] * 300
    assert lacking(full) == ""
    assert lacking([line.lower() for line in full]) == "capital letters"
    assert lacking([line.replace("?", ".") for line in full]) == "questions"
    plain = ["The dog sleeps."] * 1200
    ends, several = "lines without punctuation at the end", "lines of several sentences"
    assert lacking(plain) == f"questions, {ends}, {several}"
    assert lacking(plain, no_final_punctuation=0.2, joined=0.05) == "questions"
    # Of a few lines it may be chance, and a script without case lacks no capitals.
    assert lacking(plain[:900]) == ""
    assert lacking(["他 是 。 她 是", "他 是 ？"] * 600) == ""
