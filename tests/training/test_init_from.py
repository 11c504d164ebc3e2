"""Beginning a run from another one: weights, tokenizers, new words, parts, frozen weights."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.data.prepare import load_tokenizers
from mt.errors import ConfigError, RunError
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.training.steps import Training

UNMOVED = ("schedule.learning_rate=1.0e-30", "training.max_steps=1")
"""So that the first checkpoint has the initial weights."""
WIDTH = "model.d_model=32"
"""Of the trained run."""


@pytest.fixture
def new_corpus(tiny_corpus: Path, tmp_path: Path) -> Path:
    """The tiny corpus and some pairs with words that it does not have."""
    folder = Path(shutil.copytree(tiny_corpus, tmp_path / "new"))
    for language, line in (("en", "the owl sees a lynx.\n"), ("de", "die Eule sieht einen Luchs.\n")):
        with (folder / f"train.{language}").open("a") as file:
            file.write(3 * line)
    return folder


def weights(run: Path, name: str = "latest") -> dict[str, Tensor]:
    store = CheckpointStore(run / "checkpoints")
    return store.load_model(store.require(name))


@pytest.mark.parametrize("has_saved_nothing", [False, True])
def test_a_run_begins_with_the_weights_tokenizers_and_shape_of_another(
    has_saved_nothing: bool, train: Training, trained: RunDirectory, run: RunDirectory, new_corpus: Path
) -> None:
    with pytest.raises(ConfigError, match=r"init_from\.run: .*tiny is this run itself\. Use another --run"):
        train(WIDTH, f"init_from.run={trained.path}", restart=True, into=trained)
    if has_saved_nothing:
        # A start that saved nothing is forgotten.
        train.crash(step=1)
    train(*UNMOVED, f"data.path={new_corpus}", WIDTH, f"init_from.run={trained.path}")
    adapted = weights(run.path)
    assert all(torch.equal(weight, adapted[name]) for name, weight in weights(trained.path, "best").items())
    recorded = load_config(run.config_file).init_from
    best = CheckpointStore(trained.checkpoints_dir).require("best")
    assert (recorded.checkpoint, recorded.sha256) == (best.name, best.checksums["model.safetensors"])
    record = CheckpointStore(run.checkpoints_dir).require("latest")
    assert record.environment["init_from"] == f"{trained.path}@{best.name}"
    assert record.environment["init_from_sha256"] == recorded.sha256
    assert record.tokenizers == best.tokenizers


def test_what_the_origin_does_not_have_is_as_it_was_drawn(
    train: Training, trained: RunDirectory, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "load_model", lambda *arguments: {})
        train(*UNMOVED, WIDTH, f"init_from.run={trained.path}")
    assert torch.equal(weights(run.path)["decoder.norm.weight"], torch.ones(32))


def test_options_that_contradict_the_origin_are_named_with_both_values(
    train: Training, trained: RunDirectory, run: RunDirectory
) -> None:
    with pytest.raises(ConfigError, match=r"model.d_model is 48 here, but 32 in .*") as raised:
        train(f"init_from.run={trained.path}", "model.d_model=48", "tokenizer.lowercase=true")
    assert "tokenizer.lowercase is True here, but False" in str(raised.value)
    assert not run.path.exists()


def test_what_a_config_does_not_say_is_taken_over(
    trained: RunDirectory, run: RunDirectory, tmp_path: Path, tiny_corpus: Path
) -> None:
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("invisible: drop", "invisible: keep"))
    file = tmp_path / "short.yaml"
    file.write_text(
        f"data: {{path: {tiny_corpus}, src: en, tgt: de, max_length: 16}}\n"
        "training: {device: cpu, max_steps: 1}\nmodel: {dropout: 0.5}\n"
        f"init_from: {{run: {trained.path}}}\n"
    )
    run_training(load_config(file), run.path)
    config = load_config(run.config_file)
    assert (config.model.d_model, config.model.dropout, config.tokenizer.kind) == (32, 0.5, "word")
    assert (config.tokenizer.min_frequency, config.cleaning.invisible) == (2, "keep")


def test_a_run_resumes_exactly_without_its_origin(
    train: Training, trained: RunDirectory, tmp_path: Path
) -> None:
    options = (WIDTH, f"init_from.run={trained.path}", "training.max_steps=6", "training.freeze=encoder.*")
    train(*options, into=tmp_path / "unbroken")
    train.crash(*options, step=4, into=tmp_path / "resumed")
    shutil.rmtree(trained.path)
    train(*options, into=tmp_path / "resumed")
    for part in ("model.safetensors", "training_state.safetensors"):
        unbroken, resumed = (tmp_path / run / "checkpoints/latest" for run in ("unbroken", "resumed"))
        files = [(path.parent / path.read_text().strip() / part).read_bytes() for path in (unbroken, resumed)]
        assert files[0] == files[1]


def test_a_run_without_a_checkpoint_does_not_begin_from_other_weights_than_before(
    train: Training, trained: RunDirectory, run: RunDirectory
) -> None:
    options = (WIDTH, f"init_from.run={trained.path}", "init_from.checkpoint=latest")
    train.crash(*options, step=1)
    file = run.config_file
    recorded = str(load_config(file).init_from.sha256)
    other = recorded[:-1] + ("1" if recorded[-1] == "0" else "0")
    file.write_text(file.read_text().replace(recorded, other))
    with pytest.raises(RunError, match=r"other weights than when this run began.*--restart"):
        train(*options)


def test_new_words_follow_the_old_ones_and_change_no_translation_without_them(
    train: Training,
    trained: RunDirectory,
    run: RunDirectory,
    tmp_path: Path,
    new_corpus: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "mt")
    options = f"data.path={new_corpus}", WIDTH, f"init_from.run={trained.path}", "tokenizer.extend=true"
    train(*UNMOVED, *options)
    adapted = load_tokenizers(run)
    added = {"owl", "lynx"}, {"die", "Eule", "einen", "Luchs"}
    for before, after, words in zip(load_tokenizers(trained), adapted, added, strict=True):
        old, new = before.library.get_vocab(), after.library.get_vocab()
        assert new.keys() - old.keys() == words
        assert {word: new[word] for word in old} == old
    assert re.search(r"beginning from .*: ([\d,]+) of \1 parameters, 2 new .*src.*, 4 new .*tgt", caplog.text)
    # The row of a word of which nothing is known begins near the mean of all rows.
    for side in ("src", "tgt"):
        name = f"{side}_embedding.tokens.weight"
        rows, grown = (weights(each)[name] for each in (trained.path, run.path))
        away = (grown[len(rows) :] - rows.mean(0)) / rows.std(0)
        assert 0.05 < away.square().mean().sqrt() < 0.2
    sources = (tmp_path / "new" / "test.en").read_text().splitlines()
    first, second = (
        Translator.from_run(each, device="cpu", engine="torch", precision="float32").translate(sources)
        for each in (trained, run)
    )
    assert first == second


def test_characters_are_added_to_subwords(train: Training, tmp_path: Path, new_corpus: Path) -> None:
    subwords = "tokenizer.kind=bpe_metaspace", "tokenizer.max_size=300"
    train("training.max_steps=1", *subwords, into=tmp_path / "old")
    with (new_corpus / "train.en").open("a") as file:
        file.write("the žluťoučký owl\n")
    with (new_corpus / "train.de").open("a") as file:
        file.write("die žluťoučký Eule\n")
    options = f"data.path={new_corpus}", f"init_from.run={tmp_path / 'old'}", "tokenizer.extend=true"
    train(*UNMOVED, *subwords[:1], "tokenizer.max_size=300", *options, into=tmp_path / "new")
    tokenizers = [load_tokenizers(RunDirectory(tmp_path / run)) for run in ("old", "new")]
    embeddings = [weights(tmp_path / run) for run in ("old", "new")]
    for side, old, new in zip(("src", "tgt"), *tokenizers, strict=True):
        *first, of_first_byte, of_second_byte = old.encode("ž")
        [*same, number] = new.encode("ž")
        assert same == first
        assert new.decode(new.encode("žluť")) == "žluť"
        # Its row begins near the mean of the rows of its bytes, and no old row moves.
        rows, grown = (each[f"{side}_embedding.tokens.weight"] for each in embeddings)
        assert torch.equal(grown[: len(rows)], rows)
        away = (grown[number] - (rows[of_first_byte] + rows[of_second_byte]) / 2) / rows.std(0)
        assert 0.01 < away.square().mean().sqrt() < 0.3


@pytest.mark.parametrize(
    ("parts", "taken"),
    [
        ("encoder", {"encoder"}),
        ("encoder, src_embedding", {"encoder", "src_embedding"}),
        # Its weight is that of the embedding, too.
        ("output", {"output", "tgt_embedding"}),
    ],
)
def test_parts_alone_are_taken(
    parts: str, taken: set[str], train: Training, trained: RunDirectory, run: RunDirectory, new_corpus: Path
) -> None:
    origin = f"init_from.run={trained.path}", f"init_from.parts={parts}"
    train(*UNMOVED, WIDTH, f"data.path={new_corpus}", *origin)
    old, new = weights(trained.path, "best"), weights(run.path)
    same = {name for name in old if torch.equal(old[name], new[name])}
    assert same == {name for name in old if name.partition(".")[0] in taken}
    # The vocabulary of the other side is that of the new corpus.
    tokenizers = [load_tokenizers(RunDirectory(path)) for path in (trained.path, run.path)]
    sizes = [[tokenizer.size for tokenizer in sides] for sides in tokenizers]
    assert [before == after for before, after in zip(*sizes, strict=True)] == [
        "encoder" in taken,
        "output" in taken,
    ]


@pytest.mark.parametrize("optimizer", ["training.muon=false", "training.muon=true"])
def test_frozen_weights_stay_and_have_no_optimizer_state(
    train: Training, run: RunDirectory, optimizer: str
) -> None:
    train(optimizer, "training.freeze=encoder.*, tgt_embedding.*", "training.max_steps=1")
    first = weights(run.path)
    store = CheckpointStore(run.checkpoints_dir)
    train(optimizer, "training.freeze=encoder.*, tgt_embedding.*")
    last = weights(run.path)
    changed = {name.partition(".")[0] for name in last if not torch.equal(first[name], last[name])}
    assert changed == {"decoder", "src_embedding"}
    recovered, _ = store.resumable()
    assert recovered is not None
    assert not any("encoder." in name or "tgt_" in name for name in recovered.training_state.tensors)


def test_a_weight_is_frozen_by_any_of_its_names(
    train: Training, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mt")
    for step in (1, 2):
        train("model.tie_output=true", "training.freeze=output.*", f"training.max_steps={step}")
    first, last = weights(run.path, "step_0000001"), weights(run.path)
    same = {name for name in last if torch.equal(first[name], last[name])}
    # In a checkpoint it has one name.
    assert same == {"tgt_embedding.tokens.weight"}
    total = sum(weight.numel() for weight in last.values())
    num_trained = total - last["tgt_embedding.tokens.weight"].numel()
    assert f"{num_trained:,} of {total:,} weights are trained" in caplog.text


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("encoder.*, attic.*", r"no weight has a name like attic\.\*\. .* are decoder\.\*, encoder\.\*, "),
        ("Encoder.*", "no weight has a name like Encoder"),
        ("?*", "freezes all"),
    ],
)
def test_patterns_that_freeze_nothing_or_everything_are_refused(
    train: Training, patterns: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"training.freeze: .*{message}"):
        train(f"training.freeze={patterns}")
