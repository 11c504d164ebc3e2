"""What is proposed for a corpus, and that it can be trained."""

import json
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import mt.preflight.check
import mt.preflight.init
import mt.preflight.rule
from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.data.corpus import load_corpus
from mt.data.prepare import prepare
from mt.errors import DataError, SplitError
from mt.preflight.budget import Budget
from mt.preflight.check import preflight
from mt.preflight.forecast import warn_of_vocabulary
from mt.preflight.init import have_common_letters, propose_config
from mt.preflight.text import look_at
from mt.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("steps_of_a_tenth_of_a_second")


def test_it_says_what_it_saw_and_what_each_option_means(tiny_corpus: Path) -> None:
    text = propose_config(str(tiny_corpus), "de", "en")
    assert "160 training pairs, 12 validation, 22 test." in text
    assert "# The validation split has 12 pairs: below 100, scores are mostly chance." in text
    assert "name:" not in text
    assert re.search(r"Vocabulary: \d+ source and \d+ target entries", text)
    body = text.split("\n\n", 1)[1].splitlines()
    for before, line in pairwise(body):
        if line and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), line


def test_held_out_pairs_that_cannot_be_used_are_reported_as_by_mt_check(tmp_path: Path) -> None:
    rows = [json.dumps({"en": f"a {number}", "de": f"ein {number}"}) for number in range(200)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    (tmp_path / "test.jsonl").write_text("\n".join([json.dumps({"en": "a", "de": ""}), *rows[1:]]))
    long = [json.dumps({"en": "a " * 60, "de": f"ein {number}"}) for number in range(20)]
    (tmp_path / "validation.jsonl").write_text("\n".join([*long, *rows[20:]]))
    text = propose_config(str(tmp_path), "en", "de").replace("\n# ", " ")
    assert "The test split cannot be scored, because 1 target of it is empty: pair 1." in text
    assert "10.0% of the validation pairs are empty or have more tokens than data.max_length (32), so" in text


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x1b", "\n", "#"])
def test_a_corpus_whose_name_yaml_would_misread(character: str, tmp_path: Path) -> None:
    corpus = tmp_path / f"a{character}b"
    write_corpus(corpus, 1000, 40)
    (tmp_path / "proposed.yaml").write_text(propose_config(str(corpus), "en", "de"), encoding="utf-8")
    assert load_config(tmp_path / "proposed.yaml").data.path == str(corpus)


def test_words_are_chosen_where_nearly_all_are_known(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", 1000, 40)
    text = propose_config(str(tmp_path / "corpus"), "en", "de")
    assert "Vocabulary: 44 source and 44 target entries" in text
    assert "guided_alignment: 0.1" in text


def test_long_sentences_are_given_room(tmp_path: Path) -> None:
    rows = [f'{{"en": "{"a " * 50}{i}", "de": "{"ein " * 20}{i}"}}' for i in range(200)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    assert "max_length: 64" in propose_config(str(tmp_path), "en", "de")


def test_one_long_line_does_not_decide_what_all_sentences_have_room_for(tmp_path: Path) -> None:
    rows = [json.dumps({"en": f"a {number}", "de": f"ein {number}"}) for number in range(200)]
    # Given, so that the long line is not held out.
    for split in ("validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    rows[7] = json.dumps({"en": "a " * 6000, "de": "ein " * 6000})
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    proposed = propose_config(str(tmp_path), "en", "de")
    assert "max_length: 32" in proposed
    head = " ".join(proposed.replace("\n# ", " ").split())
    # The others have two words, with or without the long line.
    assert "about 400 running words" in head
    tokens = re.search(r"Tokens per sentence: ([\d.]+) source, ([\d.]+) target on average", head)
    assert tokens is not None
    assert all(3 <= float(mean) < 4.5 for mean in tokens.groups())


@pytest.mark.parametrize(("num_pairs", "fits", "share"), [(10, 64, "100.0%"), (200, 32, "99.")])
def test_the_share_of_pairs_that_fit_is_true_and_mt_check_accepts_it(
    num_pairs: int, fits: int, share: str, tmp_path: Path
) -> None:
    rows = [{"en": f"a {number}", "de": f"ein {number}"} for number in range(num_pairs)]
    rows[0] = {"en": "a " * 59, "de": "ein " * 59}
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = propose_config(str(tmp_path), "en", "de")
    assert f"max_length: {fits}" in text
    (stated,) = re.findall(r"; ([\d.]+)% of\s+(?:# )?the\s+(?:# )?pairs", text)
    assert f"{stated}%".startswith(share)
    num_fitting = num_pairs - (fits < 60)
    assert float(stated) == pytest.approx(100 * num_fitting / num_pairs, abs=0.05)


def held_out(corpus: Path, tmp_path: Path) -> tuple[float, int]:
    """The share that is proposed for a corpus, and the pairs of its validation split."""
    file = tmp_path / "proposed.yaml"
    file.write_text(propose_config(str(corpus), "en", "de"), encoding="utf-8")
    data = load_config(file).data
    return data.held_out_fraction, len(load_corpus(data).validation)


def test_splits_that_are_held_out_are_neither_too_small_nor_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "corpus", 1000, 2000)
    fraction, num_pairs = held_out(tmp_path / "corpus", tmp_path)
    assert fraction == 0.14
    assert 100 <= num_pairs <= 180
    monkeypatch.setattr(mt.preflight.init, "FEWEST_HELD_OUT", 0)
    monkeypatch.setattr(mt.preflight.init, "MOST_HELD_OUT", 10)
    fraction, num_pairs = held_out(tmp_path / "corpus", tmp_path)
    assert fraction == 0.01
    assert 1 <= num_pairs <= 25


def test_a_corpus_that_is_too_small_for_the_usual_share_is_split_all_the_same(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", 40, 30)
    with pytest.raises(SplitError):
        load_corpus(DataConfig(path=str(tmp_path / "corpus"), src="en", tgt="de"))
    fraction, num_pairs = held_out(tmp_path / "corpus", tmp_path)
    assert fraction == 0.15
    assert num_pairs > 0


def test_a_corpus_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"en": "a", "fr": "b"}\n' * 50)
    with pytest.raises(DataError, match="has no column 'de'"):
        propose_config(str(tmp_path), "en", "de")


LINES = {
    "en": "Two dogs run after number {}.",
    "th": "สุนัขสองตัววิ่งตามหมายเลข {}",
    "zh": "两只狗追着{}号跑。",
    "ja": "二匹の犬が{}番を追いかける。",
    "lo": "ໝາສອງໂຕແລ່ນຕາມເລກ {}",
    "km": "ឆ្កែពីរក្បាលរត់តាមលេខ {}",
    "my": "ခွေးနှစ်ကောင်သည် နံပါတ် {} နောက်သို့ ပြေးသည်",
    "ko": "개 두 마리가 {}번을 쫓아간다.",
    "de": "Zwei Hunde laufen Nummer {} nach.",
}


@pytest.fixture
def write_pairs(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a corpus of two of `LINES`; its path."""

    def write(src: str, tgt: str) -> Path:
        for language in (src, tgt):
            lines = [LINES[language].format(number) for number in range(300)]
            (tmp_path / f"corpus.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / "corpus"

    return write


@pytest.mark.parametrize("language", ["th", "zh", "ja", "lo", "km", "my"])
def test_an_unsegmented_script_is_proposed_with_bpe(
    language: str, write_pairs: Callable[[str, str], Path]
) -> None:
    text = propose_config(str(write_pairs("en", language)), "en", language).replace("\n# ", " ")
    assert f"one vocabulary for both languages; the target ({language}) has an unsegmented script" in text
    assert "Tokenizer: BPE of characters with at most" in text
    tokenizer = text.split("\ntokenizer:")[1].split("\nmodel:")[0]
    assert "kind: bpe_metaspace" in tokenizer
    assert "shared: true" in tokenizer


@pytest.mark.parametrize("language", ["ko", "de"])
def test_a_script_with_spaces_gets_none(language: str, write_pairs: Callable[[str, str], Path]) -> None:
    assert "unsegmented" not in propose_config(str(write_pairs("en", language)), "en", language)


def test_training_and_checking_hint_at_it_too(
    write_pairs: Callable[[str, str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "zh-ja.yaml"
    file.write_text(propose_config(str(write_pairs("zh", "ja")), "zh", "ja"), encoding="utf-8")
    hint = "the source (zh) and the target (ja) have an unsegmented script"
    (tmp_path / "run").mkdir()
    prepare(load_config(file, ["tokenizer.kind=word"]), RunDirectory(tmp_path / "run"), resuming=False)
    assert hint in caplog.text
    caplog.clear()
    config = load_config(file, ["tokenizer.kind=word"])
    look_at(load_corpus(config.data), config)
    assert hint in caplog.text
    caplog.clear()
    config = load_config(file)
    prepare(config, RunDirectory(tmp_path / "run"), resuming=False)
    assert "unsegmented" not in caplog.text


def write_corpus(folder: Path, num_pairs: int, num_words: int) -> None:
    """Pairs of sentences with words as frequent as those of a language: a few often, many hardly ever."""
    draw = random.Random(num_pairs)
    weights = [1 / (rank + 1) for rank in range(num_words)]

    def sentence(side: str) -> str:
        return " ".join(f"{side}{word}" for word in draw.choices(range(num_words), weights, k=9))

    rows = [{"en": sentence("e"), "de": sentence("d")} for _ in range(num_pairs)]
    folder.mkdir()
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize(
    ("num_pairs", "num_words", "kind"),
    [
        (1000, 40, "word"),
        *(pytest.param(number, 20_000, "bpe", marks=pytest.mark.slow) for number in (1000, 3000)),
    ],
)
def test_a_check_has_nothing_to_say_against_what_is_proposed(
    num_pairs: int, num_words: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.preflight.check, "MOST_TIMED_STEPS", 1)
    write_corpus(tmp_path / "corpus", num_pairs, num_words)
    file = tmp_path / "en-de.yaml"
    file.write_text(propose_config(str(tmp_path / "corpus"), "en", "de"), encoding="utf-8")
    config = load_config(file, ["training.device=cpu"])
    assert config.tokenizer.kind == kind
    assert config.copies_words == (kind == "word")
    warnings = [each for part in preflight(config, RunDirectory(tmp_path / "run")) for each in part.warnings]
    # Of other work on this machine, and of times, it may speak.
    assert [each for each in warnings if not re.search("other programs|of the run's time", each)] == []


@pytest.mark.slow
def test_long_sentences_are_no_batches_of_their_own(tmp_path: Path) -> None:
    rows = [f'{{"en": "{"a " * 900}{i}", "de": "{"ein " * 900}{i}"}}' for i in range(9)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows * 3))
    (tmp_path / "validation.jsonl").write_text("\n".join(rows))
    (tmp_path / "test.jsonl").write_text("\n".join(rows))
    (tmp_path / "en-de.yaml").write_text(propose_config(str(tmp_path), "en", "de"))
    config = load_config(tmp_path / "en-de.yaml")
    assert config.training.batch_tokens >= config.data.max_length > 900


def test_splits_of_the_users_own_are_left_as_they_are(tiny_corpus: Path) -> None:
    assert "held_out_fraction" not in propose_config(str(tiny_corpus), "en", "de").split("\n\n", 1)[1]


@pytest.mark.parametrize(
    ("src", "tgt", "shared"),
    [("en", "de", True), ("zh", "ja", False), ("en", "zh", False), ("th", "de", False), ("en", "ko", False)],
)
def test_languages_share_a_vocabulary_if_they_share_their_letters(src: str, tgt: str, shared: bool) -> None:
    assert have_common_letters([LINES[src]], [LINES[tgt]]) == shared
    # A name in the other script is not enough.
    assert have_common_letters([LINES[src]] * 9 + ["Anna"], [LINES[tgt]] * 9 + ["Anna"]) == shared


def test_a_shared_vocabulary_shares_the_embeddings(
    write_pairs: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.preflight.init, "FEW_WORDS", 0)
    file = tmp_path / "en-de.yaml"
    file.write_text(propose_config(str(write_pairs("en", "de")), "en", "de"), encoding="utf-8")
    config = load_config(file)
    assert config.tokenizer.kind == "bpe"
    assert config.tokenizer.shared
    assert config.model.share_embeddings


def test_little_text_is_learnt_as_words_that_are_aligned_although_some_are_unknown(
    write_pairs: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = str(write_pairs("en", "de"))
    file = tmp_path / "en-de.yaml"
    # The numbers, a word of seven or eight, are all different.
    text = propose_config(corpus, "en", "de")
    assert re.search(r"Tokenizer: words; up to 1\d\.\d% of those in the held-out text are unknown", text)
    assert "With so little text" in text.replace("\n# ", " ")
    file.write_text(text, encoding="utf-8")
    config = load_config(file)
    assert (config.tokenizer.kind, config.copies_words) == ("word", True)
    assert (config.training.guided_alignment, config.training.unknown_share) == (0.5, 0.1)

    for name, bound in (("FEW_WORDS", 1000), ("MOST_UNKNOWN_OF_FEW", 0.1)):
        with monkeypatch.context() as patch:
            patch.setattr(mt.preflight.init, name, bound)
            assert "kind: bpe" in propose_config(corpus, "en", "de").split("\ntokenizer:")[1]


def test_more_text_is_learnt_as_words_in_short_runs_only(
    write_pairs: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = str(write_pairs("en", "de"))
    monkeypatch.setattr(mt.preflight.init, "FEW_WORDS", 0)
    # More of these are unknown.
    monkeypatch.setattr(mt.preflight.init, "MOST_UNKNOWN_IN_SHORT_RUNS", 0.2)
    # A pass has about 2,000 tokens, and R-Drop 15 passes.
    monkeypatch.setattr(mt.preflight.rule, "R_DROP_TOKENS", 0)
    few, many = 10_000, 100_000

    def kind(target_tokens: int) -> str:
        text = propose_config(corpus, "en", "de", budget=Budget(target_tokens=target_tokens))
        assert ("In so short a run" in text.replace("\n# ", " ")) == ("\n  kind: word\n" in text)
        [found] = re.findall(r"\n  kind: (word|bpe)\n", text.split("\ntokenizer:")[1].split("\nmodel:")[0])
        return f"{found}, aligned" if "\n  guided_alignment: 0.5\n" in text else str(found)

    assert (kind(few), kind(many)) == ("word, aligned", "bpe")
    for name, bound in (("FEW_WORDS_IN_SHORT_RUNS", 0), ("MOST_UNKNOWN_IN_SHORT_RUNS", 0.1)):
        with monkeypatch.context() as patch:
            patch.setattr(mt.preflight.init, name, bound)
            assert kind(few) == "bpe, aligned"


@pytest.mark.slow
def test_a_list_of_names_is_spelled_and_scored_by_its_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.preflight.check, "MOST_TIMED_STEPS", 1)
    draw = random.Random(1)
    names = {"".join(draw.choices("abcdefgh", k=9)) for _ in range(1000)}
    rows = [json.dumps({"en": name, "xx": name[::-1]}) for name in sorted(names)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    file = tmp_path / "en-xx.yaml"
    file.write_text(propose_config(str(tmp_path), "en", "xx"), encoding="utf-8")
    config = load_config(file, ["training.device=cpu"])
    assert (config.tokenizer.kind, config.validation.metric) == ("bpe", "chrf")

    def warnings(config: Config) -> str:
        return "".join(
            each for part in preflight(config, RunDirectory(tmp_path / "run")) for each in part.warnings
        )

    advice = "Set validation.metric=chrf"
    assert advice not in warnings(config)
    assert advice in warnings(load_config(file, ["training.device=cpu", "validation.metric=bleu"]))


def test_a_check_advises_against_unknown_words_only_where_subwords_would_be_better() -> None:
    some, many = {"test targets": 0.17}, {"test targets": 0.4}
    ceilings = {"test": 70.0}
    assert list(warn_of_vocabulary(some, ceilings, 14_000)) == []
    assert len(list(warn_of_vocabulary(some, ceilings, 400_000))) == 2
    assert len(list(warn_of_vocabulary(many, ceilings, 14_000))) == 2
