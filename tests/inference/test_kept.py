"""What must stay: placeholders, addresses, patterns of the user, and entries of a dictionary."""

import re
import time
from collections import Counter
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import ConfigError
from mt.inference.kept import DEFAULT, STAND_IN, KeptParts, with_stand_ins, without_marks
from mt.inference.labels import label_read
from mt.inference.markup.placing import WORD
from mt.inference.segments import Segment, put_back
from mt.inference.source_reader import SourceReader
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import Beam, Strategy
from mt.special_tokens import UNK_ID
from mt.training.run import run_training
from tests.fixture_types import MakeConfig


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Hello {name}, {{ user.name }}!", ["{name}", "{{ user.name }}"]),
        ("%s has %d of %(count)d, 5.2%", ["%s", "%d", "%(count)d"]),
        ("100 % sure, 50%d", []),
        ("set $HOME or ${PATH}, not $5", ["$HOME", "${PATH}"]),
        ("press <0>here</0> or <1/>, a < 3 > 2", ["<0>", "</0>", "<1/>"]),
        ("see https://a.org/b?c=d#e, (www.mt.de).", ["https://a.org/b?c=d#e", "www.mt.de"]),
        ("mail a.b+c@d-e.org.", ["a.b+c@d-e.org"]),
        (
            "in /usr/bin/mt, ~/x, ./y.py or C:\\temp\\a.txt; and/or 3/4",
            ["/usr/bin/mt", "~/x", "./y.py", "C:\\temp\\a.txt"],
        ),
        ("#tag and a#b, C#", ["#tag"]),
        ("pre{name}post{x}{y}", ["{name}", "{x}", "{y}"]),
        ("no part", []),
    ],
)
def test_what_stays_by_itself(text: str, items: list[str]) -> None:
    found = KeptParts(DEFAULT, {}).find(text)
    assert [item.text for item in found] == items
    assert all(text[item.start : item.end] == item.text == item.copy for item in found)


def test_patterns_and_entries() -> None:
    parts = KeptParts([r"[A-Z]{2}-\d+"], {"hot dog": "Würstchen", "dog": "Hund"})
    found = parts.find("a hot  dog, a dog, a hot-dog and AB-12")
    assert [(item.text, item.copy) for item in found] == [
        ("hot  dog", "Würstchen"),
        ("dog", "Hund"),
        ("AB-12", "AB-12"),
    ]
    # Each pattern is by itself, so that flags and groups of one mean nothing to another.
    several = KeptParts(["(?i)foo", r"(b)\1", "(?P<n>x)y", "(?P<n>z)"], {"北京": "Peking"})
    copies = [item.copy for item in several.find("a FOO bb xy z 我爱北京")]
    assert copies == ["FOO", "bb", "xy", "z", "Peking"]
    with pytest.raises(ConfigError, match=r"'\(' is no regular expression"):
        KeptParts(["("], {})
    assert KeptParts([], {}).find("{name}") == []


LONG = ["a" * 30_000, "." * 30_000, "%" + "0" * 30_000, "/" + "." * 30_000, "{" * 30_000, "a@" * 15_000]


@pytest.mark.parametrize("text", LONG)
def test_a_long_line_takes_no_longer_than_its_length(text: str) -> None:
    started = time.perf_counter()
    parts = KeptParts(DEFAULT, {})
    parts.find(text)
    with_stand_ins("%s " * 10_000, parts.find("%s " * 10_000))
    # It was seconds to minutes; a machine may be ten times as slow as this one.
    assert time.perf_counter() - started < 5


LINES = {
    "the man sees ({name}) and {x}.": ["{name}", "{x}"],
    "{name} sees the man.": ["{name}"],
    "%s": ["%s"],
    "{a}/{b} and the house:{x}": ["{a}", "{b}", "{x}"],
    "pre{x}post{y}{z}.": ["{x}", "{y}", "{z}"],
    "का{name} and {x}\u0301": ["{name}", "{x}"],
    "see \u2603{name} now": ["{name}"],
    "他的{name}的": ["{name}"],
    "the \ue001 house {name}": [],
}


@pytest.mark.parametrize("kind", ["word", "bpe", "bpe_metaspace", "char"])
@pytest.mark.parametrize("line", LINES)
def test_each_is_read_as_one_unk_in_its_place(kind: str, line: str) -> None:
    texts = ["the man sees (a house) and the end.", "a man, 他 的 end / - : . ( ) a/b a:b (a) a."]
    config = TokenizerConfig.model_validate({"kind": kind, "max_size": 500, "min_frequency": 1})
    tokenizer = train_tokenizer(texts, config)
    reader = SourceReader(tokenizer, {}, copies=True, keep=DEFAULT)
    [tokens] = reader.read_batch([line])
    kept = [token for token in tokens if token.must_stay]
    assert [token.text for token in kept] == LINES[line]
    assert {token.id for token in kept} <= {UNK_ID}
    # It may be that other words are unknown.
    copies = [token.copy or token.text for token in tokens if token.id == UNK_ID]
    assert without_marks(tokenizer.decode([token.id for token in tokens], copies)) == line
    silent = SourceReader(tokenizer, {}, copies=False, keep=DEFAULT)
    assert not any(token.must_stay for token in silent.read(line))


def test_where_the_order_changes_nothing_touches_what_it_did_not() -> None:
    text, items = with_stand_ins("({name}) pre{x}", KeptParts(DEFAULT, {}).find("({name}) pre{x}"))
    name, prefixed = (item.copy for item in items.values())
    assert text.count(STAND_IN) == 2
    assert without_marks(f"Wort {name} ( {name})") == "Wort {name} ({name})"
    assert without_marks(f"Wort {prefixed} hier") == "Wort{x} hier"


def test_a_tokenizer_without_the_stand_in_keeps_nothing() -> None:
    vocabulary = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "see": 4}
    library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    reader = SourceReader(Tokenizer(library), {}, copies=True, keep=DEFAULT)
    [tokens] = reader.read_batch(["see {name} now"])
    assert not any(token.must_stay for token in tokens)


@pytest.fixture(scope="module")
def keeping(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run with subwords that has learnt its little language, and to keep words."""
    run = RunDirectory(tmp_path_factory.mktemp("keeping") / "run")
    config = make_config(
        "tokenizer.kind=bpe",
        "tokenizer.max_size=330",
        "data.max_length=40",
        "training.guided_alignment=0.5",
        "training.keep_share=0.3",
        "training.max_steps=300",
        "validation.every_steps=300",
        "checkpoint.every_steps=300",
        "model.d_model=32",
    )
    run_training(config, run)
    return run


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("strategy", [None, Beam(3)])
def test_what_must_stay_arrives_once(keeping: RunDirectory, engine: str, strategy: Strategy) -> None:
    dictionary = {"dog": "Wauwau", "my aunt": "Tante Erna"}
    translator = Translator.from_run(keeping, engine=engine, precision="float32", dictionary=dictionary)  # type: ignore[arg-type]
    lines = ["the {name} sees milk.", "my aunt sees the dog.", "%s buys {{x}} today.", "a child buys milk."]
    found = [best for best, *_ in translator.n_best(lines, strategy=strategy)]
    for translation, items in zip(
        found, (["{name}"], ["Tante Erna", "Wauwau"], ["%s", "{{x}}"], []), strict=True
    ):
        for item in items:
            assert translation.text.count(item) == 1, translation.text
        assert "unk" not in translation.text
        assert list(translation.unknown) == []
    plain = Translator.from_run(keeping, engine=engine, precision="float32", keep=())  # type: ignore[arg-type]
    assert plain.translate(lines[3:], strategy=strategy) == [found[3].text]
    assert plain.translate(lines[:1], strategy=strategy) != [found[0].text]


def test_a_dictionary_needs_a_model_that_keeps_words(make_config: MakeConfig, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run_training(make_config("tokenizer.kind=bpe", "tokenizer.max_size=330", "training.max_steps=2"), run)
    with pytest.raises(ConfigError, match=r"training\.guided_alignment and training\.keep_share"):
        Translator.from_run(run, dictionary={"dog": "Wauwau"})


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_pages_are_translated_as_their_text_with_the_tags_around_its_words(
    keeping: RunDirectory, engine: str
) -> None:
    translator = Translator.from_run(keeping, engine=engine, precision="float32")  # type: ignore[arg-type]
    lines = ["my aunt sees the dog.", "a child buys milk."]
    page = (
        "<p>my <b>aunt</b> sees <code>x &lt; y</code> the <i>dog</i>.</p>\n<p>a child <b>buys</b> milk.</p>"
    )
    translated = translator.translate(page, format="html")
    assert Counter(re.findall("<[^>]*>", translated)) == Counter(re.findall("<[^>]*>", page))
    assert "<code>x &lt; y</code>" in translated
    [plain] = translator.translate(lines[1:])
    assert re.sub("<[^>]*>", "", translated).splitlines()[1] == plain
    assert translator.translate([f"- {lines[1]}"], format="markdown") == [f"- {plain}"]
    # Of a long text, the tags are in the translations of their own sentences.
    num_sentences = translator.facts.max_length // 2
    sentences = [lines[1]] * num_sentences
    [[parted]] = translator.n_best([" ".join(sentences)])
    assert len(parted.parts) > 1
    sentences[3] = "a <b>child</b> buys milk."
    translated = translator.translate(" ".join(sentences), format="html")
    assert re.sub("<[^>]*>", "", translated) == parted.text
    assert translated.index("<b>") * num_sentences // len(parted.text) == 3


def test_a_model_that_has_not_learnt_it_translates_what_is_around(trained: RunDirectory) -> None:
    translator = Translator.from_run(trained)
    first, second = translator.translate(["the dog,", "a child buys milk."])
    [[apart], [inside]] = translator.n_best(["the dog, ({name}): a child buys milk.", "the dog {name} sees"])
    assert apart.text == f"{first} ({{name}}): {second}"
    assert ([*apart.lost], inside.lost) == ([], ["{name}"])
    assert translator.translate(["{name}", "", "{a}\n{b}"]) == ["{name}", "", "{a}\n{b}"]
    assert "{name}" not in Translator.from_run(trained, keep=()).translate("the dog, {name}")


@pytest.mark.parametrize(
    ("source", "written", "attends", "expected"),
    [
        # Before the word that the next one was translated to, or behind that of the one before.
        ("the {x} man sees", "der Mann sieht", [0, 2, 3], "der {x} Mann sieht"),
        ("the man {x} sees", "sieht der Mann", [3, 0, 1], "{x} sieht der Mann"),
        ("the man sees {x}.", "der Mann sieht.", [0, 1, 2, 4], "der Mann sieht {x}."),
        ("{x} man {y} {z} sees", "Mann sieht", [1, 4], "{x} Mann {y} {z} sieht"),
        ("the {x}", "", [], "{x}"),
        ("{x}", "der Mann", [0, 0], "der Mann {x}"),
    ],
)
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_what_was_not_copied_is_put_back(
    kind: str, source: str, written: str, attends: list[int], expected: str
) -> None:
    texts = ["the man sees.", "der Mann sieht."]
    # Subwords of one word each, or of a character.
    config = TokenizerConfig.model_validate({"kind": kind, "max_size": 300, "min_frequency": 1})
    tokenizer = train_tokenizer(texts, config)
    tokens = SourceReader(tokenizer, {}, copies=True, keep=DEFAULT).read(source)
    ids = tokenizer.encode(written)
    # Each piece of a word attends to the first piece of another.
    firsts = [position for position, token in enumerate(tokens) if token.must_stay or token.text]
    word_of = label_read(SourceReader(tokenizer, {}, copies=False), written, split=WORD.findall).tokens
    rows = []
    for token in word_of[:-1]:
        row = [0.0] * len(tokens)
        row[firsts[attends[token.word or 0]]] = 1.0
        rows.append(row)
    segment = Segment(0, 0, 0, tokens, ())
    found = put_back(segment, Hypothesis(ids, -1.0, finished=True), rows, tokenizer)
    copies = [tokens[position].copy or "" for position in found.copied]
    assert without_marks(tokenizer.decode(found.ids, copies)) == expected
    assert segment.lost_positions(found) == []
