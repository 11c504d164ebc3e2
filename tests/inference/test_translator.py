"""One line out for one line in, whatever the line."""

import json
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError, ConfigError, RunError
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.masks import padding_mask, target_mask
from mt.run_directory import RunDirectory
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest
from mt.search.strategy import LARGEST_SEED, Beam, Constraints, Sampling, Strategy
from mt.special_tokens import BOS_ID, EOS_ID, SPECIAL_TOKENS, UNK
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

CPU = torch.device("cpu")
SENTENCES = [
    "the dog sees milk.",
    "Anna buys two red apples today.",
    "my aunt paints the car!",
    "a child finds a house.",
    "Anna sees the car.",
    "the dog",
    "milk milk milk milk milk milk milk milk",
]


@pytest.fixture
def translator(trained: RunDirectory) -> ModelTranslator:
    return ModelTranslator.from_run(trained, device=CPU)


def test_it_has_learnt_to_translate(
    translator: ModelTranslator, trained: RunDirectory, tiny_corpus: Path
) -> None:
    sources, references = (
        (tiny_corpus / f"test.{language}").read_text(encoding="utf-8").splitlines()[:-1]
        for language in ("en", "de")
    )
    # None of these was seen in training; punctuation is attached as it is written.
    translations = translator.translate(sources)
    assert sum(map(str.__eq__, translations, references)) >= 0.9 * len(references)
    facts, report = translator.facts, json.loads(trained.corpus_file.read_text(encoding="utf-8"))
    assert (facts.src, facts.tgt, facts.max_length) == ("en", "de", 16)
    assert (facts.example, list(facts.abbreviations)) == (report["example"], report["abbreviations"])
    for num_lines in (0, 1):
        trained.corpus_file.write_text(json.dumps(report | {"lines_without_letters": num_lines}))
        again = ModelTranslator.from_run(trained, device=CPU)
        assert (again.translate(["12 - 7"]) == ["12 - 7"]) == (num_lines == 0)


def test_each_line_of_a_text_is_translated_by_itself(translator: ModelTranslator) -> None:
    one, two, three = translator.translate(SENTENCES[:3])
    text = f"{SENTENCES[0]}\n\n{SENTENCES[1]}\r\n"
    assert translator.translate([text, SENTENCES[2]]) == [f"{one}\n\n{two}\n", three]
    # Wrapped text, as it is read from a line of a file.
    wrapped = SENTENCES[0].replace(" ", "\n")
    assert translator.translate([wrapped], join_lines=True) == [one]
    assert translator.translate([wrapped]) != [one]
    [best_first] = translator.n_best([f"\n{SENTENCES[0]}"], num_best=3, strategy=Beam(3))
    [alone] = translator.n_best([SENTENCES[0]], num_best=3, strategy=Beam(3))
    assert [each.text for each in best_first] == [f"\n{each.text}" for each in alone]
    assert [each.score for each in best_first] == pytest.approx([each.score for each in alone])
    [started] = translator.translate([text], prefixes=["die"])
    assert started.startswith("die")
    assert started.endswith(f"\n\n{two}\n")


def test_empty_lines_stay_where_they_are(translator: ModelTranslator) -> None:
    lines = ["", SENTENCES[0], " \t\u3000", SENTENCES[1], ""]
    one, two = translator.translate(SENTENCES[:2])
    assert one
    assert two
    begun: list[int] = []
    assert translator.translate(lines, advance=begun.append) == ["", one, "", two, ""]
    assert sum(begun) == len(lines)
    assert translator.translate([]) == []
    assert translator.translate([""]) == [""]


def test_neither_batch_nor_order_makes_a_difference(trained: RunDirectory) -> None:
    translator = ModelTranslator.from_run(trained, device=CPU)
    together = translator.translate(SENTENCES)
    assert translator.translate(SENTENCES[::-1]) == together[::-1]
    assert [translator.translate([sentence])[0] for sentence in SENTENCES] == together
    text = trained.config_file.read_text()
    assert "batch_sentences: 8" in text
    trained.config_file.write_text(text.replace("batch_sentences: 8", "batch_sentences: 2"))
    assert ModelTranslator.from_run(trained, device=CPU).translate(SENTENCES) == together


def test_a_long_line_is_split_at_its_sentence_ends_and_a_long_sentence_in_parts(
    translator: ModelTranslator,
) -> None:
    sentences = ["the dog sees milk.", "my aunt paints the car!", "Anna buys two red apples today."]
    begun: list[int] = []
    (translation,) = translator.translate([" ".join(sentences)], advance=begun.append)
    assert sum(begun) == 1
    assert translation == " ".join(translator.translate(sentences))
    assert translation.count("Hund") == translation.count("Tante") == translation.count("Anna") == 1
    lines = ["the dog sees milk.", "the car " * 10, "Anna"]
    first, cut, last = translator.translate(lines)
    assert [first, last] == translator.translate([lines[0], lines[2]])
    assert cut == " ".join(translator.translate(["the car " * 7 + "the", "car" + " the car" * 2]))
    # 15 words and EOS are of the longest length.
    found = translator.n_best(["the car " * 7 + "the", "the car " * 8])
    assert [len(best.parts) for [best] in found] == [1, 2]


def test_sampling_is_a_function_of_seed_and_line(translator: ModelTranslator) -> None:
    def draw(texts: list[str], seed: int = 3, first_line: int = 1, temperature: float = 2.0) -> list[str]:
        return translator.translate(texts, strategy=Sampling(temperature, seed), first_line=first_line)

    together = draw(SENTENCES)
    assert draw(SENTENCES) == together
    assert [draw([sentence], first_line=line)[0] for line, sentence in enumerate(SENTENCES, 1)] == together
    assert draw(SENTENCES, seed=4) != together
    # The same sentence on two lines is drawn twice.
    assert len(set(draw([SENTENCES[0]] * 8))) > 1
    assert draw(SENTENCES[:5], temperature=0.01) == translator.translate(SENTENCES[:5])
    assert draw(SENTENCES, seed=LARGEST_SEED) != together
    assert not any(token in line for line in together for token in SPECIAL_TOKENS)


def test_each_sentence_of_a_split_line_is_drawn_for_itself(translator: ModelTranslator) -> None:
    lines = [" ".join([SENTENCES[0]] * 8)] * 2
    # At this temperature all tokens are equally likely, so that equal sentences hardly ever get equal draws.
    found = translator.n_best(lines, strategy=Sampling(1e30, 3))
    parts = [part for [translation] in found for part in translation.parts]
    assert [(segment.index, segment.number) for segment, _ in parts] == [*product((0, 1), range(8))]
    assert len({tuple(hypothesis.ids) for _, hypothesis in parts}) == len(parts)


@pytest.mark.parametrize("token", [*SPECIAL_TOKENS, "[EOS]"])
def test_text_that_looks_like_a_special_token_is_text(
    token: str, translator: ModelTranslator, trained: RunDirectory
) -> None:
    line, alike = f"the dog {token} sees milk.", f"the dog {token[0]}qqq{token[-1]} sees milk."
    if token != "</s>":  # Which has one sign more.
        assert translator.translate([line]) == translator.translate([alike])
    assert "Milch" in translator.translate([line])[0]
    tokenizer = Tokenizer.load(trained.src_tokenizer_file)
    assert not {tokenizer.encode(token)[0], *tokenizer.encode(line)} & {0, 2, 3}


def test_unk_is_written_only_with_keep_unk(make_config: MakeConfig, tmp_path: Path) -> None:
    # To this tokenizer all but the most frequent words are unknown, so that the model learns to write <unk>.
    run = RunDirectory(tmp_path)
    run_training(make_config("tokenizer.min_frequency=45", "training.max_steps=30"), run)
    translator = ModelTranslator.from_run(run, device=CPU)
    assert UNK in translator.translate(SENTENCES, keep_unk=True)[0]
    assert UNK not in "".join(translator.translate(SENTENCES))
    assert UNK not in "".join(translator.translate(SENTENCES, strategy=Sampling(1.0, 1)))


def test_the_run_may_be_moved_and_its_corpus_gone(trained: RunDirectory, tmp_path: Path) -> None:
    before = ModelTranslator.from_run(trained, device=CPU).translate(SENTENCES)
    config = trained.config_file.read_text()
    corpus = next(line for line in config.splitlines() if "  path:" in line)
    trained.config_file.write_text(config.replace(corpus, "  path: /nowhere"))
    moved = RunDirectory(trained.path.rename(tmp_path / "moved"))
    assert ModelTranslator.from_run(moved, device=CPU).translate(SENTENCES) == before


def test_another_checkpoint_is_never_used_instead(trained: RunDirectory) -> None:
    for name in ("step_0000042", "newest", "../latest", ""):
        with pytest.raises(CheckpointError, match=r"has no checkpoint .*Sound checkpoints: step_0000100"):
            ModelTranslator.from_run(trained, checkpoint=name, device=CPU)
    (trained.checkpoints_dir / "best").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint marked best.*step_0000200"):
        ModelTranslator.from_run(trained, device=CPU)
    latest = ModelTranslator.from_run(trained, checkpoint="latest", device=CPU)
    named = ModelTranslator.from_run(trained, checkpoint="step_0000200", device=CPU)
    assert latest.translate(SENTENCES) == named.translate(SENTENCES)


def test_a_run_with_inconsistent_files_is_refused(trained: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run in .*Runs near it: .*tiny\."):
        ModelTranslator.from_run(RunDirectory(trained.path.parent / "other"), device=CPU)
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("d_model: 32", "d_model: 16"))
    with pytest.raises(RunError, match=r"config\.yaml is not .*model\.d_model is 16, but was 32"):
        ModelTranslator.from_run(trained, device=CPU)
    trained.config_file.write_text(text)
    for side, file in (("src", trained.src_tokenizer_file), ("tgt", trained.tgt_tokenizer_file)):
        content = file.read_text(encoding="utf-8")
        file.write_text(f"{content} ", encoding="utf-8")
        with pytest.raises(RunError, match=f"the {side} tokenizer in .*tiny is not the one that step_0000"):
            ModelTranslator.from_run(trained, device=CPU)
        file.write_text(content, encoding="utf-8")


@pytest.mark.parametrize("strategy", [None, Beam(4, 1.0), Beam(4, 1.0, "mean")])
def test_n_best_are_in_order_and_the_first_is_the_translation(
    strategy: Beam | None, translator: ModelTranslator
) -> None:
    lines = ["", *SENTENCES, ""]
    found = translator.n_best(lines, num_best=3, strategy=strategy)
    assert [best.text for best, *_ in found] == translator.translate(lines, strategy=strategy)
    for line, best_first in zip(lines, found, strict=True):
        scores = [each.score for each in best_first]
        assert scores == sorted(scores, reverse=True)
        assert len(best_first) == (3 if line and strategy else 1)
        if strategy == Beam(4, 1.0, "mean"):
            # Words, including the full stop, and EOS.
            lengths = [
                len(each.text.replace(".", " .").replace("!", " !").split()) + 1 for each in best_first
            ]
            finished = [each for each in zip(best_first, lengths, strict=True) if each[1] < 15 and line]
            for each, length in finished:
                assert each.score == pytest.approx(each.log_prob / length)
    empty = found[0][0]
    assert (empty.text, empty.log_prob, empty.score) == ("", 0.0, 0.0)


def test_the_nth_best_of_a_split_line_has_the_nth_best_of_each_sentence(translator: ModelTranslator) -> None:
    sentences = [SENTENCES[0], "my aunt paints the car!"] * 2
    found, *each = translator.n_best([" ".join(sentences), *sentences], num_best=2, strategy=Beam(2))
    for number, translation in enumerate(found):
        parts = [best_first[number] for best_first in each]
        assert translation.text == " ".join(part.text for part in parts)
        assert translation.score == pytest.approx(sum(part.score for part in parts))
    assert len(found) == 2


@pytest.mark.parametrize("strategy", [None, Beam(3, 1.0), Sampling(0.5, 1, top_k=5, top_p=0.9)])
def test_a_translation_starts_with_its_prefix(strategy: Strategy, translator: ModelTranslator) -> None:
    prefixes = ["der Hund malt", "", "das Quux und  Wixnub-7", "ein", "", "", ""]
    found = [best.text for best, *_ in translator.n_best(SENTENCES, strategy=strategy, prefixes=prefixes)]
    for text, prefix in zip(found, prefixes, strict=True):
        assert text.startswith(" ".join(prefix.split()))
    assert found[0] != "der Hund malt"
    for place, prefix in enumerate(prefixes):
        [[alone]] = translator.n_best(
            [SENTENCES[place]], strategy=strategy, prefixes=[prefix], first_line=place + 1
        )
        assert alone.text == found[place]
    # Only the first sentence of a long line has the prefix; the others are as without it.
    long = "the dog sees milk. my aunt paints the car! Anna buys two red apples today."
    [[parts]] = translator.n_best([long], strategy=strategy, prefixes=["meine Tante"])
    [[free]] = translator.n_best([long], strategy=strategy)
    first, others = parts.text.split(". ", 1)
    assert first.startswith("meine Tante")
    assert others == free.text.split(". ", 1)[1]
    assert not free.text.startswith("meine Tante")


@pytest.mark.parametrize("strategy", [None, Beam(2), Beam(4), Sampling(seed=3)])
def test_a_translation_of_the_most_tokens_is_not_cut(strategy: Strategy, translator: ModelTranslator) -> None:
    for number, sentence in enumerate(SENTENCES, start=1):
        [[free]] = translator.n_best([sentence], strategy=strategy, first_line=number)
        [(_, found)] = free.parts
        if found.finished:
            [[same]] = translator.n_best(
                [sentence], strategy=strategy, first_line=number, max_length=len(found.ids)
            )
            assert (same.text, same.parts[0][1].finished) == (free.text, True)
            assert same.log_prob == pytest.approx(free.log_prob, abs=1e-4)
            assert same.score == pytest.approx(free.score, abs=1e-4)
    assert translator.translate(SENTENCES, strategy=strategy, max_length=0) == [""] * len(SENTENCES)


def test_translations_that_are_the_same_after_the_cut_are_listed_once(translator: ModelTranslator) -> None:
    for most in (1, 3):
        four, two = (
            translator.n_best(SENTENCES, num_best=number, strategy=Beam(4), max_length=most)
            for number in (4, 2)
        )
        # Chosen of those that differ after the cut.
        assert [best[:2] for best in four] == two
        for found in four:
            texts = [each.text for each in found]
            assert all(len(each.parts[0][1].ids) <= most for each in found)
            assert len(texts) == len(set(texts))
            assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_a_long_prefix_is_cut_and_a_long_minimum_refused(translator: ModelTranslator) -> None:
    prefix = "der Hund " * 7
    [[found]] = translator.n_best(["milk"], prefixes=[prefix])
    assert found.text.startswith(prefix.strip())
    [[found]] = translator.n_best(["milk"], prefixes=["der Hund " * 8])
    assert found.text.startswith("der Hund " * 7 + "der")
    [[found]] = translator.n_best(["milk"], constraints=Constraints(min_length=15))
    assert len(found.text.replace(".", " .").replace("!", " !").split()) >= 15
    assert found.parts[0][1].finished
    with pytest.raises(ConfigError, match="at least 16 tokens and EOS do not fit into 16"):
        translator.n_best(["milk"], constraints=Constraints(min_length=16))


@pytest.mark.parametrize(("written", "factor"), [("3.5", 7), ("0.5", 2), ("NaN", 2), (None, 2)])
def test_the_length_limit_follows_from_the_training_data(
    written: str | None, factor: int, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = json.loads(trained.corpus_file.read_text(encoding="utf-8"))
    src, tgt = (load_model(trained, "best").src_tokenizer, load_model(trained, "best").tgt_tokenizer)
    pairs = load_split(load_config(trained.config_file).data, "train")
    num_src, num_tgt = (
        sum(len(ids) + 1 for ids in tokenizer.encode_batch(list(pairs[side])))
        for tokenizer, side in ((src, "src"), (tgt, "tgt"))
    )
    assert facts["target_ratio"] == pytest.approx(num_tgt / num_src)
    trained.corpus_file.write_text("{}" if written is None else f'{{"target_ratio": {written}}}')
    limits: list[int] = []

    def note(model: object, request: SearchRequest) -> list[Hypothesis]:
        limits.extend(request.limits)
        return [Hypothesis([], 0.0, finished=True)] * len(request.limits)

    monkeypatch.setattr("mt.inference.torch_engine.greedy_search", note)
    translator = ModelTranslator.from_run(trained, device=CPU)
    translator.facts = replace(translator.facts, max_length=100)
    translator.translate(["the dog sees milk."])
    # Five tokens and EOS.
    assert limits == [factor * 6 + 10]


def test_an_ensemble_of_a_run_with_itself_is_that_run(
    trained: RunDirectory, translator: ModelTranslator
) -> None:
    ensemble = ModelTranslator.from_run(trained, device=CPU, others=[trained, trained])
    for strategy in (None, Beam(3, 1.0), Sampling(1.0, 1)):
        assert ensemble.translate(SENTENCES, strategy=strategy) == translator.translate(
            SENTENCES, strategy=strategy
        )


@torch.inference_mode()
def test_an_ensemble_of_two_takes_the_mean_of_their_probabilities(trained: RunDirectory) -> None:
    one, two = (load_model(trained, name) for name in ("step_0000100", "step_0000200"))
    translator = ModelTranslator(one, others=[two])
    [[found]] = translator.n_best(SENTENCES[:1])
    src_ids = torch.tensor([[*one.src_tokenizer.encode(SENTENCES[0]), EOS_ID]])
    ids = one.tgt_tokenizer.encode(found.text)
    tgt_ids = torch.tensor([[BOS_ID, *ids]])
    probabilities = torch.stack(
        [
            each.model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))[0].double().softmax(-1)
            for each in (one, two)
        ]
    )
    labels = torch.tensor([*ids, EOS_ID])[:, None]
    log_probs = [float(each.gather(-1, labels).log().sum()) for each in probabilities]
    # PAD, UNK and BOS share none of it.
    mean = probabilities.mean(0)
    by_hand = float((mean.gather(-1, labels)[:, 0] / mean[:, EOS_ID:].sum(-1)).log().sum())
    assert found.log_prob == pytest.approx(by_hand, abs=1e-4)
    assert all(abs(by_hand - each) > 1e-3 for each in log_probs)


def test_an_ensemble_copies_if_all_its_members_do(trained: RunDirectory) -> None:
    plain = load_model(trained, "best")
    copying = replace(plain, facts=replace(plain.facts, copies_words=True))
    for first, second in ((copying, plain), (plain, copying)):
        assert not ModelTranslator(first, others=[second]).facts.copies_words
        with pytest.raises(ConfigError, match="a model that keeps"):
            ModelTranslator(first, others=[second], dictionary={"dog": "Katze"})
    ModelTranslator(copying, others=[copying], dictionary={"dog": "Katze"})


def test_an_ensemble_needs_the_same_vocabularies(
    trained: RunDirectory, tiny_corpus: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    # As many words, so that no shape of the weights differs.
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    file = corpus / "train.de"
    file.write_text(file.read_text(encoding="utf-8").replace("Milch", "Zorblat"), encoding="utf-8")
    other = RunDirectory(tmp_path / "other")
    run_training(make_config(f"data.path={corpus}", "training.max_steps=1"), other)
    with pytest.raises(RunError, match=r"other has other languages or vocabularies than .*tiny"):
        ModelTranslator.from_run(trained, checkpoint="latest", device=CPU, others=[other])


@pytest.mark.parametrize("exchanged", [{"en": "de", "de": "en"}, {"de": "fr"}])
def test_an_ensemble_needs_the_same_languages_even_with_the_same_vocabularies(
    exchanged: dict[str, str], trained: RunDirectory, tmp_path: Path
) -> None:
    """As with two directions and a shared vocabulary, or with one external tokenizer for all languages."""
    other = RunDirectory(Path(shutil.copytree(trained.path, tmp_path / "other")))
    config = other.config_file.read_text(encoding="utf-8")
    for side, name in (("src", "en"), ("tgt", "de")):
        config, count = re.subn(rf"{side}: {name}\b", f"{side}: {exchanged.get(name, name)}", config)
        assert count == 1
    other.config_file.write_text(config, encoding="utf-8")
    assert ModelTranslator.from_run(other, device=CPU).translate(["milk"])
    with pytest.raises(RunError, match=r"other has other languages or vocabularies than .*tiny"):
        ModelTranslator.from_run(trained, device=CPU, others=[other])


def test_an_ensemble_reads_no_more_than_its_shortest_model(
    trained: RunDirectory, make_config: MakeConfig, tmp_path: Path
) -> None:
    other = RunDirectory(tmp_path / "other")
    run_training(make_config("data.max_length=14", "training.max_steps=3", "model.d_model=8"), other)
    ensemble = ModelTranslator.from_run(trained, checkpoint="latest", device=CPU, others=[other])
    assert all(ensemble.translate(SENTENCES, strategy=Beam(2, 1.0)))
    [[found]] = ensemble.n_best(["the car " * 7])
    assert [len(segment.tokens) for segment, _ in found.parts] == [13, 1]
