"""What is proposed for a corpus, and that it can be trained."""

import json
import random
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.data.corpus import load_corpus
from mt.errors import SplitError
from mt.preflight.check import preflight
from mt.preflight.init import have_common_letters, propose_config
from mt.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("steps_of_a_tenth_of_a_second")

WritePairs = Callable[[str, str], Path]


def proposed(corpus: Path, src: str = "en", tgt: str = "de", minutes: float | None = None) -> str:
    """What is proposed for the corpus, with the lines of its comment joined."""
    return propose_config(DataConfig(path=str(corpus), src=src, tgt=tgt), minutes).yaml.replace("\n# ", " ")


def proposed_config(corpus: Path, tmp_path: Path, *options: str, src: str = "en", tgt: str = "de") -> Config:
    file = tmp_path / "proposed.yaml"
    file.write_text(propose_config(DataConfig(path=str(corpus), src=src, tgt=tgt)).yaml, encoding="utf-8")
    return load_config(file, options)


def write_rows(file: Path, rows: Sequence[tuple[str, str]]) -> None:
    lines = [json.dumps({"en": src, "de": tgt}) for src, tgt in rows]
    file.write_text("\n".join(lines), encoding="utf-8")


def write_corpus(folder: Path, num_pairs: int, num_words: int) -> None:
    """Pairs of sentences with words as frequent as those of a language: a few often, many hardly ever."""
    draw = random.Random(num_pairs)
    weights = [1 / (rank + 1) for rank in range(num_words)]

    def sentence(side: str) -> str:
        return " ".join(f"{side}{word}" for word in draw.choices(range(num_words), weights, k=9))

    folder.mkdir()
    write_rows(folder / "train.jsonl", [(sentence("e"), sentence("d")) for _ in range(num_pairs)])


def test_it_says_what_it_saw_and_what_each_option_means(tiny_corpus: Path) -> None:
    text, summary = propose_config(DataConfig(path=str(tiny_corpus), src="de", tgt="en"))
    assert "160 training pairs, 12 validation, 22 test." in text
    assert "# warning the validation split has 12 pairs: below 100, scores are mostly chance." in text
    words = {
        side: re.findall(r"\w+|[^\w\s]", (tiny_corpus / f"train.{side}").read_text(encoding="utf-8"))
        for side in ("de", "en")
    }
    sizes = {side: len({*of_side}) + 4 for side, of_side in words.items()}
    assert f"Vocabulary: {sizes['de']} source and {sizes['en']} target entries" in text
    means = {side: len(of_side) / 160 + 1 for side, of_side in words.items()}
    assert f"Tokens per sentence: {means['de']:.1f} source, {means['en']:.1f} target on average" in text
    body = text.split("\n\n", 1)[1]
    assert "name:" not in body
    # The corpus has its splits.
    assert "held_out_fraction" not in body
    for before, line in pairwise(body.splitlines()):
        if line and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), line
    names = "passes steps model unknown warning warning warning"
    assert [line.split()[0] for line in summary] == names.split()
    model = yaml.safe_load(text)["model"]
    layers = f"{model['num_encoder_layers']} + {model['num_decoder_layers']}"
    assert summary[2].endswith(f" parameters: {layers} layers of width {model['d_model']}")
    assert all(" ".join(line.split()) in text.replace("\n# ", " ") for line in summary[:3])


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x1b", "\n", "#"])
def test_a_corpus_name_that_yaml_would_misread(character: str, tmp_path: Path) -> None:
    corpus = tmp_path / f"a{character}b"
    write_corpus(corpus, 1000, 40)
    assert proposed_config(corpus, tmp_path).data.path == str(corpus)


def test_one_long_line_does_not_decide_the_length_of_all(tmp_path: Path) -> None:
    rows = [(f"a {number}", f"ein {number}") for number in range(200)]
    # Given, so that the long line is not held out.
    for split in ("validation", "test"):
        write_rows(tmp_path / f"{split}.jsonl", rows)
    write_rows(tmp_path / "train.jsonl", [*rows[:-1], ("a " * 6000, "ein " * 6000)])
    text = proposed(tmp_path)
    assert "max_length: 32" in text
    # The others have two words, with or without the long line.
    assert "about 400 running words" in text
    [means] = re.findall(r"Tokens per sentence: ([\d.]+) source, ([\d.]+) target on average", text)
    assert all(3 <= float(mean) < 4.5 for mean in means)


@pytest.mark.parametrize(
    ("num_pairs", "num_words", "fraction", "bounds"),
    [(1000, 2000, 0.14, (100, 180)), (900, 2000, 0.15, (100, 180)), (40, 30, 0.15, (1, 20))],
)
def test_held_out_splits_are_large_enough(
    num_pairs: int, num_words: int, fraction: float, bounds: tuple[int, int], tmp_path: Path
) -> None:
    write_corpus(tmp_path / "corpus", num_pairs, num_words)
    if num_pairs == 40:
        with pytest.raises(SplitError):
            load_corpus(DataConfig(path=str(tmp_path / "corpus"), src="en", tgt="de"))
    data = proposed_config(tmp_path / "corpus", tmp_path).data
    assert data.held_out_fraction == fraction
    assert bounds[0] <= len(load_corpus(data).validation) <= bounds[1]


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
def write_pairs(tmp_path: Path) -> WritePairs:
    """Write a corpus of two of `LINES`; its path."""

    def write(src: str, tgt: str) -> Path:
        for language in (src, tgt):
            lines = [LINES[language].format(number) for number in range(300)]
            (tmp_path / f"corpus.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / "corpus"

    return write


@pytest.mark.parametrize("language", ["th", "zh", "ja", "lo", "km", "my"])
def test_an_unsegmented_script_gets_bpe(language: str, write_pairs: WritePairs) -> None:
    text = proposed(write_pairs("en", language), tgt=language)
    assert f"one vocabulary for both languages; {language}: an unsegmented script" in text
    assert "Tokenizer: BPE of characters with at most" in text
    tokenizer = text.split("\ntokenizer:")[1].split("\nmodel:")[0]
    assert "kind: bpe_metaspace" in tokenizer
    assert "shared: true" in tokenizer


@pytest.mark.parametrize("language", ["ko", "de"])
def test_a_script_with_spaces_gets_no_hint(language: str, write_pairs: WritePairs) -> None:
    assert "unsegmented" not in proposed(write_pairs("en", language), tgt=language)


@pytest.mark.parametrize(
    ("num_pairs", "num_words", "kind"),
    [
        (1000, 40, "word"),
        *(pytest.param(number, 20_000, "bpe", marks=pytest.mark.slow) for number in (1000, 3000)),
    ],
)
def test_a_check_does_not_warn_of_what_is_proposed(
    num_pairs: int, num_words: int, kind: str, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "corpus", num_pairs, num_words)
    config = proposed_config(tmp_path / "corpus", tmp_path, "training.device=cpu")
    assert config.tokenizer.kind == kind
    assert config.copies_words == (kind == "word")
    assert kind == "bpe" or config.training.guided_alignment == 0.1
    # Whatever this machine computes fast.
    assert config.training.precision == "mixed"
    warnings = preflight(config, RunDirectory(tmp_path / "run"), lambda section: None).warnings
    # It may warn of times on this machine, which the proposal did not measure, and of the corpus's text.
    others = "of the run's time", "the only validation is at the end", "hardly any source"
    assert [warning for warning in warnings if not any(part in warning for part in others)] == []


def test_where_no_target_has_four_words_chrf_is_chosen_and_bleu_is_warned_of(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        write_rows(
            tmp_path / f"{split}.jsonl", [(f"a dog {number}", f"ein Hund {number}") for number in range(200)]
        )
    assert "Metric: chrF, because BLEU counts sequences of four words" in proposed(tmp_path)
    assert proposed_config(tmp_path, tmp_path).validation.metric == "chrf"
    for metric in ("bleu", "chrf"):
        config = proposed_config(tmp_path, tmp_path, "training.device=cpu", f"validation.metric={metric}")
        warnings = preflight(config, RunDirectory(tmp_path / "run"), lambda section: None).warnings
        assert any("BLEU is 0 for any translation" in warning for warning in warnings) == (metric == "bleu")


@pytest.mark.parametrize(
    ("src", "tgt", "shared"),
    [("en", "de", True), ("zh", "ja", False), ("en", "zh", False), ("th", "de", False), ("en", "ko", False)],
)
def test_languages_share_a_vocabulary_if_they_share_their_letters(src: str, tgt: str, shared: bool) -> None:
    assert have_common_letters([LINES[src]], [LINES[tgt]]) == shared
    # A name in the other script is not enough.
    assert have_common_letters([LINES[src]] * 9 + ["Anna"], [LINES[tgt]] * 9 + ["Anna"]) == shared


def test_little_text_is_learnt_as_aligned_words_although_some_are_unknown(
    write_pairs: WritePairs, tmp_path: Path
) -> None:
    # The numbers, a word of seven or eight, are all different.
    text, summary = propose_config(DataConfig(path=str(write_pairs("en", "de")), src="en", tgt="de"))
    assert re.search(r"Tokenizer: words; up to 1\d\.\d% of those in the held-out text are unknown", text)
    assert "With so little text" in text.replace("\n# ", " ")
    assert re.search(r"up to 1\d\.\d% of the words .* copied", summary[3])
    config = proposed_config(write_pairs("en", "de"), tmp_path)
    assert (config.tokenizer.kind, config.copies_words) == ("word", True)
    assert (config.training.guided_alignment, config.training.keep_share) == (0.5, 0.1)
    assert (config.training.lexicon_start, config.model.output_bias) == (True, True)


def proposed_both_ways(corpus: Path, **further: object) -> tuple[dict[str, Any], str]:
    sources = {"back": {"path": str(corpus), "src": "de", "tgt": "en"}} | further
    data = {"path": str(corpus), "src": "en", "tgt": "de", "sources": sources, "temperature": 5}
    text = propose_config(DataConfig.model_validate(data)).yaml
    return yaml.safe_load(text), text.replace("\n# ", " ")


def test_a_plan_for_several_directions_is_made_of_all_of_them(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write_corpus(corpus, 1000, 40)
    few = {"path": str(corpus), "src": "en", "tgt": "xx", "columns": "en,de", "num_train_pairs": 200}
    config, text = proposed_both_ways(corpus, few=few)
    # The third direction has fewer pairs: an average one decides on what is held out of each.
    assert 0.14 <= config["data"]["held_out_fraction"] <= 0.15
    [(own, weight)] = re.findall(
        r"Directions: en to de, (\d+) pairs with weight 1; de to en, .*; en to xx, 200 .* weight (.*?)\. ",
        text,
    )
    assert int(own) < 800
    assert 2 < float(weight) < 3.6
    assert "data.temperature 5 shows those with less text more often" in text
    assert "over: all" not in proposed(corpus)
    # Not words, as of each direction alone: those that are unknown would be copied into any language.
    assert "kind: word" in proposed(corpus)
    assert config["tokenizer"] == {"kind": "bpe", "max_size": 2000, "shared": True}
    assert config["model"]["share_embeddings"]
    assert "one vocabulary for all languages, because sources and targets have most letters" in text


@pytest.mark.slow
def test_more_text_is_learnt_as_words_in_short_runs_only(tmp_path: Path) -> None:
    # About 180,000 running words.
    write_corpus(tmp_path / "corpus", 20_000, 6000)

    def kind(minutes: float) -> str:
        text = proposed(tmp_path / "corpus", minutes=minutes)
        [name] = re.findall(r"\n  kind: (word|bpe)\n", text.split("\ntokenizer:")[1])
        assert ("In so short a run" in text) == (name == "word")
        return str(name)

    assert (kind(1), kind(5000)) == ("word", "bpe")
