"""The fast engine: it translates as torch does, is made once, goes with its checkpoint, needs no torch."""

import json
import math
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import mt
from mt import Beam, Constraints, Sampling, Translator
from mt.errors import CheckpointError, ConfigError, EngineError, LinesError
from mt.inference.engine import convert as conversion
from mt.inference.engine.convert import write_ctranslate2
from mt.inference.engine.copies import copies_of
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine
from mt.inference.engine.load import load_exported
from mt.inference.engines import Rules, Sentence
from mt.inference.exported_folder import REFUSED, remove_stale, weights_of
from mt.inference.loaded_model import LoadedModel, build_model, load_model
from mt.inference.model_translator import ModelTranslator
from mt.inference.verify import translator_of, verify
from mt.run_directory import RunDirectory
from mt.search.hypothesis import Hypothesis
from mt.special_tokens import UNK_ID
from tests.tiny import tiny_pairs

SOURCES = [source for source, _ in tiny_pairs()[:96]]
# Two words that the translation could begin with, though it does not.
PREFIXES = ["eine Anna" if number % 3 == 0 else "" for number in range(len(SOURCES))]


@pytest.fixture
def run(converted: Path, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(converted, tmp_path / "run")))


def engines_in(run: RunDirectory) -> list[str]:
    return sorted(path.name for path in run.engine_dir.iterdir())


@pytest.mark.parametrize("constraints", [Constraints(), Constraints(min_length=12, no_repeat_ngram=2)])
@pytest.mark.parametrize("prefixes", [[], PREFIXES])
@pytest.mark.parametrize("strategy", [None, Beam(5)])
def test_both_engines_translate_alike(
    strategy: Beam | None, prefixes: list[str], constraints: Constraints, converted: Path
) -> None:
    translators = [
        Translator.from_run(converted, engine=name, precision="float32") for name in ("torch", "ctranslate2")
    ]
    torch, fast = (
        each.n_best(SOURCES, strategy=strategy, prefixes=prefixes, constraints=constraints)
        for each in translators
    )
    # A length limit cuts alike.
    short, same = (each.translate(SOURCES[:40], strategy=strategy, max_length=4) for each in translators)
    assert short == same
    differing = 0
    for [one], [other] in zip(torch, fast, strict=True):
        assert other.score == pytest.approx(one.score, abs=1e-3)
        if one.text == other.text:
            assert other.log_prob == pytest.approx(one.log_prob, abs=1e-3)
        else:
            # Only a near-tie may fall the other way.
            differing += 1
    assert differing <= 2


@pytest.mark.parametrize("strategy", [None, Beam(3)])
@pytest.mark.parametrize("is_trained", [True, False])
def test_each_sentence_of_a_call_has_its_own_limit(
    is_trained: bool, strategy: Beam | None, trained: RunDirectory, tmp_path: Path
) -> None:
    loaded = load_model(trained, "best")
    if not is_trained:
        # Most of its translations are not finished at their limits.
        torch.manual_seed(1)
        loaded = replace(loaded, model=build_model(loaded.config, loaded.src_tokenizer, loaded.tgt_tokenizer))
    tokenizers = loaded.src_tokenizer, loaded.tgt_tokenizer
    write_ctranslate2(loaded, tmp_path, "float32")
    ids = loaded.src_tokenizer.encode_batch(SOURCES)
    sentences = [Sentence(line, row, limit=2 + line % 7) for line, row in enumerate(ids)]
    found = [
        engine.search(sentences, Rules(strategy), lambda: None, lambda _: None)
        for engine in (ModelTranslator(loaded).engine, CTranslate2Engine(tmp_path, *tokenizers))
    ]
    differing = 0
    for ours, theirs, sentence in zip(*found, sentences, strict=True):
        one, other = ours[0], theirs[0]
        assert len(other.ids) + other.finished <= sentence.limit
        assert other.score == pytest.approx(one.score, abs=1e-3)
        differing += (one.ids, one.finished, len(ours)) != (other.ids, other.finished, len(theirs))
    # Only a near-tie may fall the other way.
    assert differing <= 2


def test_it_is_the_default_and_says_why(
    converted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MT_ENGINE")
    translator = Translator.from_run(converted)
    assert not isinstance(translator, ModelTranslator)
    assert translator.described.startswith("engine: ctranslate2, ")
    assert translator.translate(["the dog sees a house."]) == ["der Hund sieht ein Haus."]
    # What it cannot do, torch does, which is loaded for that.
    assert translator.translate(["the dog sees a house."], strategy=Sampling(0.1)) == [
        "der Hund sieht ein Haus."
    ]
    monkeypatch.setenv("MT_ENGINE", "torch")
    assert Translator.from_run(converted).why == "MT_ENGINE is torch"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"precision": "bf16", "device": "cpu"}, "bf16"),
        ({"others": ["OTHER"]}, "ensemble"),
        ({"device": "mps"}, "mps"),
        pytest.param(
            {"device": "cuda"},
            "on cuda: CUDA",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA"),
        ),
    ],
)
def test_a_forced_engine_says_what_it_cannot_do(
    options: dict[str, object], why: str, run: RunDirectory
) -> None:
    given = {key: [run.path] if value == ["OTHER"] else value for key, value in options.items()}
    with pytest.raises(ConfigError, match=why):
        Translator.from_run(run, engine="ctranslate2", **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="does not sample"):
        Translator.from_run(run, engine="ctranslate2").translate(["Anna"], strategy=Sampling())


def test_it_is_made_once_and_whole(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    before = engines_in(run)
    assert before == [weights_of(run, "best")]
    monkeypatch.setattr(conversion, "convert", None)
    Translator.from_run(run, engine="ctranslate2")
    assert engines_in(run) == before


def test_where_the_engine_cannot_be_used_torch_translates_and_says_why(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MT_ENGINE")
    with monkeypatch.context() as patch:
        # The lock of this process is not seen by itself.
        patch.setattr(RunDirectory, "lock_owner", lambda self: "process 1 on there")
        assert "trained" in Translator.from_run(trained).why
        assert not trained.engine_dir.exists()

    def score(engine: CTranslate2Engine, sentences: list[Sentence]) -> list[list[float]]:
        return [[math.nan] * (len(sentence.prefix) + 1) for sentence in sentences]

    with monkeypatch.context() as patch:
        patch.setattr(CTranslate2Engine, "score", score)
        assert "log-probabilities of random sentences differ" in Translator.from_run(trained).why
    shutil.rmtree(trained.engine_dir)
    # A file where the folder would be, because the superuser may write anywhere.
    trained.engine_dir.write_text("")
    assert str(trained.engine_dir) in Translator.from_run(trained).why


def test_a_damaged_one_is_made_again(run: RunDirectory) -> None:
    [engine] = run.engine_dir.iterdir()
    model = engine / "float32" / "model.bin"
    sound = model.read_bytes()
    # A flipped bit.
    model.write_bytes(sound[:-5] + bytes([sound[-5] ^ 1]) + sound[-4:])
    translator = Translator.from_run(run, engine="ctranslate2", precision="float32")
    assert translator.translate(["Anna buys milk."]) == ["Anna kauft Milch."]
    assert model.read_bytes() == sound


def test_engines_go_with_their_checkpoints(run: RunDirectory) -> None:
    for checkpoint in ("latest", "step_0000150", "step_0000100"):
        Translator.from_run(run, checkpoint=checkpoint, engine="ctranslate2")
    kept = {weights_of(run, "step_0000150"), weights_of(run, "step_0000100")}
    assert {*engines_in(run)} == kept
    shutil.rmtree(run.checkpoints_dir / "step_0000100")
    remove_stale(run)
    assert engines_in(run) == [weights_of(run, "step_0000150")]


def test_a_model_that_translates_otherwise_is_refused_once(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("MT_ENGINE")
    written = conversion.write_ctranslate2

    def spoilt(loaded: LoadedModel, *arguments: Any) -> None:
        weight = loaded.model.output.weight
        with torch.no_grad():
            weight.mul_(1.01)
            written(loaded, *arguments)
            weight.div_(1.01)

    monkeypatch.setattr(conversion, "write_ctranslate2", spoilt)
    translator = Translator.from_run(trained)
    assert isinstance(translator, ModelTranslator)
    assert "log-probabilities of random sentences differ" in translator.why
    [engine] = trained.engine_dir.iterdir()
    assert [path.name for path in engine.iterdir()] == [REFUSED]
    monkeypatch.setattr(conversion, "convert", None)
    assert isinstance(Translator.from_run(trained), ModelTranslator)


def test_copies_are_read_from_the_aligning_head() -> None:
    sentence = Sentence(1, [UNK_ID, 7, UNK_ID])
    first, known, last, end = [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.1, 0.4], [0.4, 0.5, 0.1]
    sound = Hypothesis([UNK_ID, 8, UNK_ID], -1.0, True)
    # The third attends most to the first word, which is taken, and then to the last.
    assert copies_of(sound, sentence, [first, known, last, end]) == ([0, 2], None)
    short = Hypothesis([UNK_ID, 8], -1.0, True)
    # EOS, which has no column, has the rest.
    assert copies_of(short, sentence, [first, known, [0.1, 0.1, 0.3]]) == ([0], None)
    for hypothesis, attention, prefix, copies in (
        # UNK where no word is to be copied, a word where UNK is, and an end before the last was copied.
        (sound, [known, known, last, end], [], []),
        (sound, [first, last, last, end], [UNK_ID, UNK_ID], [0, 2]),
        (short, [first, known, last], [UNK_ID, 8, UNK_ID], [0, -1, 2]),
    ):
        _, again = copies_of(hypothesis, sentence, attention)
        assert again == replace(sentence, prefix=prefix, prefix_copies=copies)
    # A word that the prefix has taken is not taken again.
    given = Sentence(1, [UNK_ID, 7, UNK_ID], [8, UNK_ID], [-1, 2])
    continued = Hypothesis([8, UNK_ID, UNK_ID], -1.0, False)
    assert copies_of(continued, given, [first, first, last]) == ([2, 0], None)


@pytest.mark.parametrize(("lower", "used"), [(29.8, "int8"), (29.6, "float32")])
def test_int8_is_used_if_it_loses_no_quality(
    lower: float, used: str, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, told = iter([30.0, lower]), list[object]()
    monkeypatch.setattr(conversion.LOG, "info", lambda *message: told.append(message))
    monkeypatch.setattr(conversion, "verification_pairs", lambda run: tiny_pairs()[:100])
    monkeypatch.setattr(conversion, "verify", lambda *arguments: [])
    monkeypatch.setattr(conversion, "bleu_of", lambda *arguments: next(scores))
    assert Translator.from_run(trained, engine="ctranslate2").engine.precision == used
    assert f"{used} is used: on 100 validation sentences, int8 changes BLEU by {lower - 30:.2f}" in str(told)


def test_its_scores_are_those_of_torch(converted: Path) -> None:
    pairs = [*pairwise(SOURCES), ("", ""), ("", "Anna"), ("the zebra", "das Zebra")]
    torch, fast = (
        Translator.from_run(converted, engine=name, precision="float32").score(pairs)
        for name in ("torch", "ctranslate2")
    )
    for ours, theirs in zip(torch, fast, strict=True):
        assert (theirs.tokens, theirs.num_unknown) == (ours.tokens, ours.num_unknown)
        assert list(theirs.log_probs) == pytest.approx(list(ours.log_probs), abs=1e-4)
    assert torch[-1].num_unknown == 1


def test_pairs_to_score_that_do_not_fit_into_memory_together_are_split(
    converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator, score = Translator.from_run(converted, engine="ctranslate2"), CTranslate2Engine.score
    pairs = [*pairwise(SOURCES[:9])]
    expected = translator.score(pairs)

    def cramped(engine: CTranslate2Engine, sentences: list[Sentence]) -> list[list[float]]:
        if len(sentences) > room:
            raise RuntimeError("CUDA failed with error out of memory")
        return score(engine, sentences)

    monkeypatch.setattr(CTranslate2Engine, "score", cramped)
    room = 3
    # Sums in batches of another size may differ in their last bits.
    for split, whole in zip(translator.score(pairs), expected, strict=True):
        assert (split.tokens, split.num_unknown) == (whole.tokens, whole.num_unknown)
        assert list(split.log_probs) == pytest.approx(list(whole.log_probs), abs=1e-4)
    room = 0
    with pytest.raises(LinesError, match=r"line 1 has a sentence of . tokens that does not fit into memory"):
        translator.score(pairs)


def test_its_alignment_is_that_of_torch(converted: Path) -> None:
    torch, fast = (
        ModelTranslator.from_run(converted),
        Translator.from_run(converted, engine="ctranslate2", precision="float32"),
    )
    for text in SOURCES[:40]:
        [found] = torch.n_best([text], num_best=2, strategy=Beam(3))
        assert fast.align(text, found) == torch.align(text, found)


def test_without_torch_an_unconverted_run_says_what_to_do(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="where torch is installed"):
        Translator.from_run(trained, engine="ctranslate2")


ERRORS = [RuntimeError("no kernel for this processor"), ValueError("no int8 here"), MemoryError("bad_alloc")]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", ["ctranslate2.Translator", "ctranslate2.specs.TransformerSpec.save"])
def test_where_ctranslate2_fails_torch_translates_and_says_why(
    where: str, error: Exception, trained: RunDirectory, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.delenv("MT_ENGINE")
    monkeypatch.setattr(where, fail)
    # The one is to be converted first, the other is loaded.
    for run in (trained, converted) if where.endswith("Translator") else (trained,):
        assert re.search(f"engine: torch, .*{error}", Translator.from_run(run).described)
        with pytest.raises(ConfigError, match=str(error)):
            Translator.from_run(run, engine="ctranslate2")
    # It is of this machine, and so no engine is marked as refused.
    assert not list(trained.engine_dir.rglob(REFUSED))


def test_where_a_processor_has_no_int8_float32_is_used(
    run: RunDirectory, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    [engine] = run.engine_dir.iterdir()
    shutil.copytree(engine / "float32", engine / "int8")
    (engine / "int8/model.bin").write_bytes(b"not to be loaded")
    # Nor where float32 is asked for.
    assert Translator.from_run(run, engine="ctranslate2", precision="float32").translate("Anna")
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: {"float32"})
    assert Translator.from_run(run, engine="ctranslate2").engine.precision == "float32"
    # Nor is int8 tried when a checkpoint is converted.
    monkeypatch.setattr(conversion, "verification_pairs", lambda run: tiny_pairs()[:100])
    monkeypatch.setattr(conversion, "verify", lambda *arguments: [])
    Translator.from_run(trained, engine="ctranslate2")
    [engine] = trained.engine_dir.iterdir()
    assert [path.name for path in engine.iterdir()] == ["float32"]


@pytest.mark.parametrize("change", [{"target_ratio": 9.0}, {"src": 5}, {"checksums": {}}, {"seal": None}])
def test_a_record_that_was_changed_is_not_believed(change: dict[str, Any], run: RunDirectory) -> None:
    [engine] = run.engine_dir.iterdir()
    file = engine / "float32/mt_export.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change, indent=2) + "\n")
    with pytest.raises(CheckpointError, match=r"mt_export\.json cannot be read.*Export the run again"):
        load_exported(engine / "float32")
    # That of a run is made again.
    Translator.from_run(run, engine="ctranslate2")
    load_exported(engine / "float32")


def test_a_model_whose_translations_differ_is_refused(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MT_ENGINE")
    search = CTranslate2Engine.search

    def without_the_last_word(self: CTranslate2Engine, *arguments: Any) -> list[list[Hypothesis]]:
        return [[replace(each, ids=each.ids[:-1]) for each in best] for best in search(self, *arguments)]

    monkeypatch.setattr(CTranslate2Engine, "search", without_the_last_word)
    assert "does not translate like the run" in Translator.from_run(trained).why
    # Without validation sentences, random ones alone verify, whose log-probabilities are the same.
    trained.verification_file.unlink()
    shutil.rmtree(trained.engine_dir)
    assert Translator.from_run(trained).engine.name == "ctranslate2"


ALL, NONE = ("greedy search", "beam of 5"), ()
DIFFERENCES = [
    (2, 0.0, ALL, False), (3, 0.0, ALL, True), (3, 0.9, NONE, False), (3, 1.1, NONE, True),
]  # fmt: skip


@pytest.mark.parametrize(("num_differing", "lost", "exact", "is_refused"), DIFFERENCES)
def test_how_much_an_exported_model_may_differ(
    num_differing: int,
    lost: float,
    exact: Sequence[str],
    is_refused: bool,
    converted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = load_model(RunDirectory(converted), "best")
    own = translator_of(loaded, ModelTranslator(loaded).engine)

    def exported(texts: Sequence[str], strategy: Beam | None) -> list[str]:
        # Of the translations by a beam, none differs.
        changed = 0 if strategy else num_differing
        translations = own.translate(texts, strategy=strategy)
        return [*(f"{text} nicht" for text in translations[:changed]), *translations[changed:]]

    def bleu(texts: Sequence[str], references: Sequence[str]) -> float:
        return 30.0 - lost if texts[0].endswith(" nicht") else 30.0

    monkeypatch.setattr("mt.inference.verify.bleu", bleu)
    pairs = tiny_pairs()[:100]
    if is_refused:
        with pytest.raises(EngineError, match=f"with greedy search, {num_differing} of 100 sentences differ"):
            verify(loaded, exported, pairs, exact=exact)
    else:
        same = [each.num_same for each in verify(loaded, exported, pairs, exact=exact)]
        assert same == [100 - num_differing, 50]


@pytest.mark.parametrize("path", ["corpus.tsv", "somebody/a-corpus"])
def test_a_run_translates_without_the_corpus_that_its_config_names(
    path: str, trained: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.endswith(".tsv"):
        path = str(tmp_path / path)
        os.mkfifo(path)
    text = trained.config_file.read_text(encoding="utf-8")
    trained.config_file.write_text(re.sub(r"(?m)^  path: .*$", f"  path: {path}", text, count=1))

    def fail(*arguments: Any, **options: Any) -> None:
        pytest.fail("it waits for a pipe, or asks the network")

    monkeypatch.setattr("socket.getaddrinfo", fail)
    monkeypatch.setattr("socket.socket.connect", fail)
    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    try:
        translator = Translator.from_run(trained, engine="ctranslate2")
        assert translator.translate(["Anna buys milk."]) == ["Anna kauft Milch."]
        mt.export_run(trained, tmp_path / "exported", to="ctranslate2")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_model_for_what_the_engine_cannot_do_is_loaded_once(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_run, loaded = ModelTranslator.from_run, []

    def slowly(*arguments: Any, **options: Any) -> ModelTranslator:
        time.sleep(0.2)
        loaded.append(from_run(*arguments, **options))
        return loaded[-1]

    monkeypatch.delenv("MT_ENGINE")
    monkeypatch.setattr(ModelTranslator, "from_run", slowly)
    translator = Translator.from_run(run)
    # As `mt translate --sample --file` translates two blocks at once.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: translator.translate([text], strategy=Sampling()), ["Anna", "the dog"]))
    assert len(loaded) == 1


@pytest.fixture(autouse=True)
def _no_folder_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.rglob(".*partial*"))
