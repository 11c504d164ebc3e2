"""Sides of training pairs that another run writes: back-translation, and targets for a student."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import mt
import mt.training.run
from mt.config.data import CleaningConfig, DataConfig
from mt.config.sources import WriterConfig
from mt.data import written
from mt.data.corpus import load_corpus
from mt.data.prepare import load_tokenizers
from mt.data.written import Writer, WrittenSide
from mt.errors import ConfigError, DataError, MtError, RunError
from mt.inference.writer import open_writer
from mt.run_directory import RunDirectory
from mt.sides import Sides
from tests.fixture_types import AssertSame, MakeConfig
from tests.training.steps import Training

KILLED = RuntimeError("killed while it writes")
CAPTIONS = "data.sources.captions"


def backwards(texts: Sequence[str], first: int) -> list[str | None]:
    """A translation that a test can check: the words from last to first; a line of one word is not one."""
    reversed_words = [" ".join(reversed(text.split())) for text in texts]
    return [words if " " in words else None for words in reversed_words]


Translate = Callable[[Sequence[str], int], list[str | None]]


@pytest.fixture
def write_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Translate], list[Sides[str]]]:
    """Lets a function write; the directions in which it was opened are returned."""

    def use(translate: Translate) -> list[Sides[str]]:
        opened: list[Sides[str]] = []

        def open_it(config: WriterConfig, direction: Sides[str]) -> Writer:
            opened.append(direction)
            return Writer({"runs": config.run, "weights": ["1"], "beam": config.beam}, translate)

        monkeypatch.setattr(mt.training.run, "open_writer", open_it)
        monkeypatch.setattr(written, "PART_ROWS", 4)
        return opened

    return use


@pytest.fixture
def captions(tmp_path: Path) -> list[str]:
    """The options of a source of German lines, whose English side is to be written."""
    file = tmp_path / "captions.txt"
    lines = [f"der Hund sieht {number} Äpfel" for number in range(8)] + ["der Hund\u2028sieht 8 Äpfel"]
    file.write_text("".join(f"{line}\n" for line in [*lines, "Milch"]), encoding="utf-8")
    options = {"path": file, "tgt": "de", "write_src.run": "runs/de-en", "tag": "synthetic", "weight": 2}
    return [f"{CAPTIONS}.{key}={value}" for key, value in options.items()]


def test_what_another_run_writes_is_trained_on_behind_a_tag(
    train: Training,
    run: RunDirectory,
    captions: list[str],
    write_by: Callable[[Translate], list[Sides[str]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert write_by(backwards) == []
    train(*captions, "training.max_steps=2")
    report = json.loads(run.corpus_file.read_text())
    assert report["sources"][1]["pairs"] == 9
    assert report["sources"][1]["written"]["runs"] == "runs/de-en"
    assert report["splits"]["train"]["dropped"] == {"what was written is cut at its length limit": 1}
    config = mt.load_config(run.config_file)
    corpus = load_corpus(config.data, config.cleaning, written=run.written_dir)
    assert corpus.train[160] == {"src": "Äpfel 0 sieht Hund der", "tgt": "der Hund sieht 0 Äpfel"}
    src, _ = load_tokenizers(run)
    assert src.beginning("de", "synthetic") == [src.reserved["<tag:synthetic>"]]
    assert [share.tag for share in corpus.shares] == [None, "synthetic"]
    # Nobody needs the tag to translate, and text that looks like it is text.
    assert len(src.encode("<tag:synthetic>")) > 0
    assert src.reserved["<tag:synthetic>"] not in src.encode("<tag:synthetic>")
    # What reads the corpus without the run says what it reads.
    assert load_corpus(config.data).train[160] == dict.fromkeys(("src", "tgt"), "der Hund sieht 0 Äpfel")
    assert "data.sources.captions: write_src is for mt train" in caplog.text


def test_a_run_that_is_killed_while_it_writes_ends_like_one_that_is_not(
    train: Training,
    run: RunDirectory,
    captions: list[str],
    write_by: Callable[[Translate], list[Sides[str]]],
    assert_same: AssertSame,
) -> None:
    firsts: list[int] = []

    def sometimes_killed(texts: Sequence[str], first: int) -> list[str | None]:
        firsts.append(first)
        if firsts in ([1], [1, 1, 5]):
            raise KILLED
        return backwards(texts, first)

    opened = write_by(sometimes_killed)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="killed while"):
            train(*captions)
    train(*captions, step=4)
    # Those that were there are not written again, and nothing is when the run is resumed.
    assert firsts == [1, 1, 5, 5, 9]
    assert opened == [Sides("de", "en")] * 3
    shutil.rmtree("runs/de-en", ignore_errors=True)
    train(*captions)
    write_by(backwards)
    unbroken = RunDirectory(run.path.with_name("unbroken"))
    train(*captions, into=unbroken)
    assert_same(run, unbroken)


@pytest.mark.parametrize("change", [f"{CAPTIONS}.write_src.beam=2", f"{CAPTIONS}.num_train_pairs=7"])
def test_what_was_begun_otherwise_is_refused_and_stays(
    train: Training,
    run: RunDirectory,
    captions: list[str],
    write_by: Callable[[Translate], list[Sides[str]]],
    change: str,
) -> None:
    def killed_later(texts: Sequence[str], first: int) -> list[str | None]:
        if first > 1:
            raise KILLED
        return backwards(texts, first)

    write_by(killed_later)
    with pytest.raises(RuntimeError, match="killed while"):
        train(*captions)
    part = run.written_dir / "captions" / "00000.jsonl"
    content = part.read_bytes()
    with pytest.raises(RunError, match="captions was begun by another model, with another search"):
        train(*captions, change)
    assert part.read_bytes() == content


def test_text_that_is_not_what_was_translated_is_refused(
    train: Training,
    tmp_path: Path,
    captions: list[str],
    run: RunDirectory,
    write_by: Callable[[Translate], list[Sides[str]]],
) -> None:
    write_by(backwards)
    train(*captions, step=1)
    file = tmp_path / "captions.txt"
    text = file.read_text(encoding="utf-8")
    for other in (text.replace("sieht 3", "sah 3"), text + "noch eine Zeile\n", text.removesuffix("Milch\n")):
        file.write_text(other, encoding="utf-8")
        with pytest.raises(DataError, match="captions has the translation of other text than the corpus"):
            train(*captions)
    file.write_text(text, encoding="utf-8")
    (run.written_dir / "captions" / "00001.jsonl").unlink()
    with pytest.raises(RunError, match="captions has lost what a model wrote for this run: restore it"):
        load_corpus(mt.load_config(run.config_file).data, written=run.written_dir)


def test_a_writer_that_cannot_write_is_refused_before_any_writes(
    train: Training, run: RunDirectory, trained: RunDirectory, captions: list[str]
) -> None:
    able = [f"data.write_tgt.run={trained.path}", *captions]
    with pytest.raises(RunError, match=r"data\.sources\.captions\.write_src: There is no run in runs/de-en"):
        train(*able)
    other_way = f"{CAPTIONS}.write_src.run={trained.path}"
    with pytest.raises(RunError, match=r"write_src: this model does not translate from de into en, only en"):
        train(*able, other_way)
    assert not run.written_dir.exists()
    with (
        trained.lock(),
        pytest.raises(RunError, match=r"data\.write_tgt: .*tiny is still being trained"),
    ):
        train(*able[:1])


def test_a_student_learns_what_its_teacher_wrote(
    train: Training,
    run: RunDirectory,
    trained: RunDirectory,
    make_config: MakeConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = [f"data.write_tgt.run={trained.path}", "data.write_tgt.temperature=2", "training.max_steps=1"]
    train(*options)
    human = load_corpus(make_config().data)
    part = run.written_dir / "own" / "00000.jsonl"
    lines = [json.loads(line) for line in part.read_text(encoding="utf-8").splitlines()]
    assert [line["en"] for line in lines] == list(human.train["src"])
    assert sum(line["de"] == text for line, text in zip(lines, human.train["tgt"], strict=True)) < 160
    # Held-out pairs are people's, and the training split of the run is what was written.
    corpus = load_corpus(mt.load_config(run.config_file).data, written=run.written_dir)
    assert list(corpus.validation["tgt"]) == list(human.validation["tgt"])
    assert list(corpus.train["tgt"]) == [line["de"] for line in lines if line["de"]]
    assert mt.evaluate(run, split="train", device="cpu").num_sentences == len(corpus.train)
    # Test sentences can be scored without it.
    shutil.rmtree(run.written_dir)
    assert mt.evaluate(run, split="test", device="cpu").num_sentences == 22
    assert "are not counted: " in caplog.text


def test_a_student_reads_what_people_write_and_its_teacher_translates_just_that(
    write_by: Callable[[Translate], list[Sides[str]]], make_config: MakeConfig, tmp_path: Path
) -> None:
    given: list[str] = []

    def teach(texts: Sequence[str], first: int) -> list[str | None]:
        given.extend(texts)
        return backwards(texts, first)

    write_by(teach)
    shares = ("as_written.no_final_punctuation=0.4", "as_written.joined=0.5", "training.max_steps=2")
    config = make_config("data.write_tgt.run=teacher", *shares)
    run = RunDirectory(tmp_path / "run")
    mt.training.run.run_training(config, run)
    corpus = load_corpus(config.data, config.cleaning, written=run.written_dir)
    own = load_corpus(config.data.model_copy(update={"write_tgt": None}), config.cleaning)
    sources, originals = list(corpus.train["src"]), list(own.train["src"])
    assert sources == given
    changed = [row for row, text in enumerate(sources) if text != originals[row]]
    assert 0.25 * len(sources) < len(changed) < 0.55 * len(sources)
    assert all(sources[row] == originals[row].rstrip(" .!?") for row in changed)
    assert [*corpus.train["tgt"]] == backwards(given, 1)


def test_writing_leaves_torch_the_threads_that_it_had(
    train: Training, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With CTranslate2, which sets them to one: a resumed run would not compute the same.
    monkeypatch.delenv("MT_ENGINE")
    torch.set_num_threads(2)
    try:
        train(f"data.write_tgt.run={trained.path}", step=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_what_is_held_out_is_neither_written_nor_trained_on(
    train: Training,
    tiny_corpus: Path,
    run: RunDirectory,
    tmp_path: Path,
    write_by: Callable[[Translate], list[Sides[str]]],
) -> None:
    write_by(backwards)
    test_lines = (tiny_corpus / "test.de").read_text(encoding="utf-8").splitlines()
    (tmp_path / "mono.de").write_text("\n".join([*test_lines, "der neue Hund"]), encoding="utf-8")
    mono = [f"data.sources.mono.{key}" for key in (f"path={tmp_path}/mono.de", "write_src.run=a")]
    for name in ("train.en", "train.de"):
        shutil.copy(tiny_corpus / name, tmp_path)
    own = [f"data.path={tmp_path}/train", "data.held_out_fraction=0.1", "data.write_tgt.run=b"]
    train(*own, "training.max_steps=1")
    config = mt.load_config(run.config_file)
    corpus = load_corpus(config.data, written=run.written_dir)
    assert len(corpus.train) < 150
    held_out = {*corpus.validation["src"], *corpus.test["src"]}
    assert held_out.isdisjoint(text for text, *_ in WrittenSide(run.written_dir / "own").rows())
    leaking = RunDirectory(run.path.with_name("leaking"))
    train(*mono, "cleaning.remove_leaks=true", "training.max_steps=1", into=leaking)
    corpus = load_corpus(
        mt.load_config(leaking.config_file).data,
        CleaningConfig(remove_leaks=True),
        written=leaking.written_dir,
    )
    assert corpus.report.sources[1].pairs == 1
    assert corpus.train["tgt"][-1] == "der neue Hund"


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"mono.jsonl": '{"text": "ein Satz"}'}, "mono.jsonl"),
        ({"mono.csv": "id,text\n7,ein Satz"}, "mono.csv"),
        ({"mono.txt": "ein Satz"}, "mono.txt"),
        ({"mono.text": "ein Satz"}, "mono"),
        ({"a.text": "ein Satz", "b.text": "noch einer"}, "*.text"),
        ({"train.de": "ein Satz", "train.en": "a sentence"}, ""),
        ({"train.de": "ein Satz", "train.en": "a sentence"}, "train.de"),
    ],
)
def test_only_the_side_that_is_there_is_read(
    tmp_path: Path, files: dict[str, str], path: str, tiny_corpus: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content + "\n")
    columns = None if "train.de" in files else "-,text"
    source = {"path": str(tmp_path / path), "columns": columns, "write_src": {"run": "a"}}
    values = {"path": str(tiny_corpus), "src": "en", "tgt": "de", "sources": {"mono": source}}
    corpus = load_corpus(DataConfig.model_validate(values))
    expected = ["ein Satz", "noch einer"][: len(files) if "*" in path else 1]
    assert corpus.train[160:]["tgt"] == expected
    assert corpus.train[160:]["src"] == expected


def test_a_run_writes_by_search_or_by_sampling_and_leaves_out_what_is_cut(trained: RunDirectory) -> None:
    texts, direction = ["the dog sees milk.", "Anna buys the car today."], Sides("en", "de")
    greedy = open_writer(WriterConfig(run=str(trained.path)), direction)
    assert greedy.translate(texts, 1) == ["der Hund sieht Milch.", "Anna kauft das Auto heute."]
    assert greedy.record["direction"] == ["en", "de"]
    assert [len(weights) for weights in greedy.record["weights"]] == [64]
    sampled = open_writer(WriterConfig(run=str(trained.path), temperature=3.0), direction)
    assert sampled.translate(texts, 1) == sampled.translate(texts, 1)
    assert sampled.translate(texts[1:], 2) == sampled.translate(texts, 1)[1:]
    assert None in sampled.translate(texts * 50, 1)
    both = open_writer(WriterConfig(run=f"{trained.path}, {trained.path}", beam=2), direction)
    assert both.translate(texts, 1) == greedy.translate(texts, 1)
    for weights in trained.checkpoints_dir.glob("*/model.safetensors"):
        weights.write_bytes(b"damaged")
    with pytest.raises(MtError, match="damaged"):
        open_writer(WriterConfig(run=str(trained.path)), direction)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["write_src.run=a", "write_tgt.run=b"], "write_src and write_tgt exclude each other"),
        (["write_src.run=a", "write_src.top_k=5"], "top_k is for sampling: give the writer a temperature"),
        (["write_src.run=a", "write_src.beam=5", "write_src.temperature=1"], "a beam or samples"),
        (["write_src.beam=2"], r"captions\.write_src\.run is missing, and has no default"),
        (["write_src.bean=2"], r"unknown key '.*write_src\.bean'\. Did you mean .*write_src\.beam\?"),
        (["write_src=runs/de-en"], "write_src' must be a mapping"),
        (["tag=two words"], r"captions\.tag must be"),
    ],
)
def test_a_wrong_option_is_named(
    make_config: MakeConfig, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(f"{CAPTIONS}.path={tmp_path}", *(f"{CAPTIONS}.{option}" for option in options))
