"""`mt import` against random Marian models of `transformers`, with SentencePiece models trained here."""

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import load_file, save_file

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.errors import CheckpointError, DataError, RunError
from mt.export.export import export_model
from mt.inference.loaded_model import LoadedModel, load_model
from mt.run_directory import RunDirectory
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt.training.run import run_training
from tests.data.conftest import Hub
from tests.data.corpora import parallel, write

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

SHAPES: dict[str, dict[str, Any]] = {
    "opus": {"activation_function": "swish", "scale_embedding": True},
    "separate vocabularies": {"share_encoder_decoder_embeddings": False, "scale_embedding": False},
    "embeddings that are not scaled": {"activation_function": "gelu", "scale_embedding": False},
    "untied": {"activation_function": "relu", "tie_word_embeddings": False, "scale_embedding": True},
    "deep": {"encoder_layers": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "scale_embedding": True},
    "EOS as decoder start": {"scale_embedding": True, "activation_function": "silu", "starts_with_eos": True},
}  # fmt: skip
CODE = ">>de<<"
FC1 = "model.encoder.layers.0.fc1.weight"


@dataclass(frozen=True)
class Original:
    """A folder as OPUS-MT publishes it, and what `transformers` makes of it."""

    folder: Path
    model: Any
    tokenizer: Any


def sentences(seed: int, number: int) -> list[str]:
    """Words of a made-up language."""
    drawn = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "ü")]
    words = ["".join(drawn.choices(syllables, k=drawn.randint(1, 3))) for _ in range(200)]
    return [
        " ".join(drawn.choices(words, k=drawn.randint(1, 9))).capitalize() + drawn.choice(".!?")
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pieces")
    for seed, side in enumerate(("source", "target")):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences(seed, 1000)),
            model_prefix=str(folder / side),
            vocab_size=200,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    return {side: folder / f"{side}.spm" for side in ("source", "target")}


def vocabulary(*files: Path) -> dict[str, int]:
    """The pieces of these models, numbered as Marian does: PAD is the last."""
    ids = {"</s>": 0, "<unk>": 1}
    for file in files:
        model = sentencepiece.SentencePieceProcessor(str(file))
        for number in range(3, model.get_piece_size()):
            ids.setdefault(model.id_to_piece(number), len(ids))
    ids[CODE] = len(ids)
    return ids | {"<pad>": len(ids)}


def make_original(folder: Path, pieces: dict[str, Path], seed: int = 1, **shape: Any) -> Original:
    is_shared = shape.get("share_encoder_decoder_embeddings", True)
    starts_with_eos = shape.pop("starts_with_eos", False)
    files = list(pieces.values())
    ids = [vocabulary(*files)] * 2 if is_shared else [vocabulary(file) for file in files]
    pad = ids[1]["<pad>"]
    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    config = transformers.MarianConfig(
        **sizes | {"encoder_layers": 2, "decoder_layers": 2, "activation_function": "swish"} | shape,
        vocab_size=len(ids[0]), decoder_vocab_size=len(ids[1]), encoder_attention_heads=4,
        decoder_attention_heads=4, max_position_embeddings=40, pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=0 if starts_with_eos else pad, bad_words_ids=[[pad]],
    )  # fmt: skip
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(seed)
        model = transformers.MarianMTModel(config).eval()
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                alpha = 0.3 if "embed" in name or "norm" in name else 0.15
                parameter.add_(torch.randn_like(parameter), alpha=alpha)
        model.final_logits_bias = torch.randn_like(model.final_logits_bias)
        # Translations end now and then.
        drawn = torch.randint(2, pad - 1, (20, 10))
        logits = model(input_ids=drawn, decoder_input_ids=drawn.flip(0)).logits
        model.final_logits_bias[0, 0] += (logits.amax(-1) - logits[..., 0]).quantile(0.2)
    model.save_pretrained(folder)
    for name, file in pieces.items():
        shutil.copy(file, folder / f"{name}.spm")
    (folder / "vocab.json").write_text(json.dumps(ids[0]))
    if not is_shared:
        (folder / "target_vocab.json").write_text(json.dumps(ids[1]))
    about = {"source_lang": "xx", "target_lang": "yy", "separate_vocabs": not is_shared}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return Original(folder, model, transformers.MarianTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def published(pieces: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("published") / "original", pieces)


@pytest.fixture
def original(published: Original, tmp_path: Path) -> Original:
    """One that may be changed."""
    return replace(published, folder=Path(shutil.copytree(published.folder, tmp_path / "original")))


def imported(original: Original, run: Path, src: str | None = None, tgt: str | None = None) -> LoadedModel:
    from mt.export.marian import import_marian

    import_marian(str(original.folder), RunDirectory(run), src=src, tgt=tgt)
    return load_model(RunDirectory(run), "best")


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_tokens_are_those_of_transformers(
    shape: str, pieces: dict[str, Path], tmp_path: Path
) -> None:
    original = make_original(tmp_path / "original", pieces, **SHAPES[shape])
    loaded = imported(original, tmp_path / "run")
    theirs, config = original.model.config, loaded.config
    assert (config.data.src, config.data.tgt, config.data.max_length) == ("xx", "yy", 40)
    assert (config.tokenizer.kind, config.tokenizer.shared) == ("imported", shape != "separate vocabularies")
    assert (config.model.dropout, config.model.d_ff) == (theirs.dropout, theirs.encoder_ffn_dim)
    entry_of = {number: entry for entry, number in original.tokenizer.encoder.items()}
    for text in [*sentences(0, 500), *sentences(1, 480), *ODD]:
        tokens = loaded.src_tokenizer.tokens([*loaded.src_tokenizer.encode(text), EOS_ID])
        assert tokens == [entry_of[number] for number in original.tokenizer(text).input_ids], text
    source, target = sentences(0, 500)[3], sentences(1, 500)[4]
    theirs_src = original.tokenizer(source).input_ids
    theirs_tgt = original.tokenizer(text_target=target).input_ids
    ours_src = [*loaded.src_tokenizer.encode(source), EOS_ID]
    ours_tgt = [BOS_ID, *loaded.tgt_tokenizer.encode(target)]
    start = original.model.config.decoder_start_token_id
    with torch.inference_mode():
        expected = original.model(
            input_ids=torch.tensor([theirs_src]), decoder_input_ids=torch.tensor([[start, *theirs_tgt[:-1]]])
        ).logits[0]
        see_all = torch.ones(1, 1, 1, len(ours_src), dtype=torch.bool)
        causal = torch.ones(len(ours_tgt), len(ours_tgt), dtype=torch.bool).tril()[None, None]
        logits = loaded.model.eval()(torch.tensor([ours_src]), see_all, torch.tensor([ours_tgt]), causal)[0]
    separate = original.tokenizer.separate_vocabs
    ids = original.tokenizer.target_encoder if separate else original.tokenizer.encoder
    entries = loaded.tgt_tokenizer.tokens(range(loaded.tgt_tokenizer.size))
    rows = [ids.get(entry.lstrip("\ue000"), start) for entry in entries]
    ours = slice(UNK_ID, None) if start else slice(EOS_ID, None)
    torch.testing.assert_close(logits[:, ours], expected[:, rows][:, ours], atol=1e-5, rtol=1e-5)
    # One of the four special tokens has no id of its own there.
    added = BOS_ID if start == 0 else PAD_ID
    assert logits.softmax(-1)[:, added].max() < 1e-6


ODD = [
    f"{CODE} Ba", "ﬁne ① ½", "日本語 text 日本", "don't", "e\u0301", "a\u00a0b\tc", "Ba" * 30, "\u200b",
    "  two   spaces ",
]  # fmt: skip


@pytest.mark.parametrize("is_scaled", [True, False])
def test_an_imported_run_is_adapted_and_exported(
    is_scaled: bool, pieces: dict[str, Path], tmp_path: Path
) -> None:
    from mt.export import transformers_model

    original = make_original(tmp_path / "original", pieces, scale_embedding=is_scaled)
    loaded = imported(original, tmp_path / "run")
    pairs = list(zip(sentences(0, 60), sentences(1, 60), strict=True))
    for split, number in (("train", 60), ("validation", 10), ("test", 10)):
        write(tmp_path / "corpus", parallel(split, pairs[:number], ("xx", "yy")))
    config = Config.model_validate(
        {
            "data": {"path": str(tmp_path / "corpus"), "src": "xx", "tgt": "yy", "max_length": 40},
            "schedule": {"kind": "constant", "learning_rate": 1e-3},
            "training": {"max_steps": 1, "freeze": "encoder.*"},
            "init_from": {"run": str(tmp_path / "run")},
        }
    )
    run_training(config, tmp_path / "adapted")
    adapted = load_model(RunDirectory(tmp_path / "adapted"), "latest")
    before, after = loaded.model.weights(), adapted.model.weights()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "output.bias" in changed
    assert not any(name.startswith("encoder.") for name in changed)
    export_model(adapted, "adapted", pairs[:30], tmp_path / "exported", transformers_model)


def test_languages_that_a_model_does_not_name_are_given(pieces: dict[str, Path], tmp_path: Path) -> None:
    original = make_original(tmp_path / "original", pieces)
    (original.folder / "tokenizer_config.json").write_text("{}")
    # What is not in the config has the value that it has in transformers.
    content = json.loads((original.folder / "config.json").read_text())
    for name in ("dropout", "scale_embedding", "share_encoder_decoder_embeddings", "tie_word_embeddings"):
        content.pop(name, None)
    (original.folder / "config.json").write_text(json.dumps(content))
    for only in ("src", "tgt"):
        with pytest.raises(DataError, match="--src and --tgt"):
            imported(original, tmp_path / "run", **{only: "aa"})
    loaded = imported(original, tmp_path / "run", "aa", "bb")
    assert (loaded.config.data.src, loaded.config.data.tgt) == ("aa", "bb")
    assert (loaded.config.model.dropout, loaded.config.model.tie_output) == (0.1, False)


def test_the_fast_way_from_the_hub_to_a_translation(
    original: Original, published: Original, new_hub: Callable[[], Hub], tmp_path: Path
) -> None:
    weights = original.model.state_dict()
    (tmp_path / "original" / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "original" / "pytorch_model.bin")
    hub = new_hub()
    hub.add("org/opus-mt-xx-yy", {path.name: path.read_bytes() for path in original.folder.iterdir()})
    done = hub.run("-m", "mt", "import", "org/opus-mt-xx-yy", "--run", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "weights_only=True" in done.stderr
    wrong = hub.run("-m", "mt", "import", "org/nothing", "--run", str(tmp_path / "other"))
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "org/nothing cannot be loaded" in wrong.stderr
    loaded = load_model(RunDirectory(tmp_path / "run"), "best")
    direct = imported(published, tmp_path / "direct")
    ours = loaded.model.weights()
    assert all(torch.equal(weight, ours[name]) for name, weight in direct.model.weights().items())


def edit(name: str, **values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | values))

    return change


def with_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(Path("pickled"), folder / "pytorch_model.bin")


def weights(
    change: Callable[[torch.Tensor], torch.Tensor], *, pickled: bool = False, name: str = FC1
) -> Callable[[Path], None]:
    """Change one matrix, in the file of safetensors or in a pickle instead of it."""

    def write(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors[name] = change(tensors[name])
        if pickled:
            (folder / "model.safetensors").unlink()
            torch.save(tensors, folder / "pytorch_model.bin")
        else:
            save_file(tensors, folder / "model.safetensors")

    return write


def in_a_bomb(folder: Path) -> None:
    weights(lambda tensor: torch.zeros(5_000_000), pickled=True)(folder)
    with ZipFile(folder / "pytorch_model.bin") as stored:
        parts = {each: stored.read(each) for each in stored.namelist()}
    with ZipFile(folder / "pytorch_model.bin", "w", ZIP_DEFLATED) as compressed:
        for part, content in parts.items():
            compressed.writestr(part, content)


def in_pieces(change: Callable[[Any], None]) -> Callable[[Path], None]:
    """Change the SentencePiece model of the source."""

    def write(folder: Path) -> None:
        from sentencepiece import sentencepiece_model_pb2

        model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
        model.ParseFromString((folder / "source.spm").read_bytes())
        change(model)
        (folder / "source.spm").write_bytes(model.SerializeToString())

    return write


def with_option(spec: str, name: str, value: int) -> tuple[Callable[[Path], None], str]:
    def change(model: Any) -> None:
        setattr(getattr(model, spec), name, value)

    return in_pieces(change), "only unigram models without special options can"


def in_rules(start: int, content: bytes) -> Callable[[Path], None]:
    """Overwrite a part of the compiled rules of normalisation: the size of a trie, the trie, and texts."""

    def change(model: Any) -> None:
        rules = bytearray(model.normalizer_spec.precompiled_charsmap)
        rules[start : start + len(content)] = content
        model.normalizer_spec.precompiled_charsmap = bytes(rules)

    return in_pieces(change)


NOISE = random.Random(1).randbytes(2048)
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "another kind": (edit("config.json", model_type="bart"), r"config\.json.* model_type: .*'marian'"),
    "another activation": (edit("config.json", activation_function="tanh"), "activation_function: .*'swish'"),
    "another order": (edit("config.json", normalize_before=True), "normalize_before: .*False"),
    "other words": (edit("config.json", bad_words_ids=[[3]]), r"bad_words_ids are \[\[3\]\]"),
    "other heads": (edit("config.json", decoder_attention_heads=8), r"encoder \(4, 64\) and decoder \(8"),
    "another width": (edit("config.json", encoder_ffn_dim=32, decoder_ffn_dim=32), "not those of its config"),
    "more words": (edit("vocab.json", more=10_000), "its ids are not 0, 1, 2"),
    "no languages": (edit("tokenizer_config.json", source_lang=None), "--src and --tgt"),
    "no width": (edit("config.json", d_model=None), "d_model: "),
    "NaN": (weights(lambda tensor: tensor * torch.nan), r"encoder\..*weight contains NaN"),
    "no SentencePiece": (lambda folder: (folder / "source.spm").write_bytes(b"no"), "source.spm"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "neither model.safetensors nor"),
    "cut weights": (lambda folder: os.truncate(folder / "model.safetensors", 5000), "cannot be read"),
    "code in a pickle": (with_code, "cannot be read"),
    "a tensor of stride 0": (
        weights(lambda _: torch.zeros(1).expand(2**16, 2**16), pickled=True), "too few for the values"
    ),
    "a compressed pickle": (in_a_bomb, "it is compressed"),
    "complex numbers": (weights(lambda tensor: tensor.to(torch.complex64)), "fc1.weight does not consist"),
    "truth values": (weights(lambda tensor: tensor > 0), "fc1.weight does not consist"),
    "a sparse tensor": (weights(lambda tensor: tensor.to_sparse(), pickled=True), "does not consist of"),
    "a longer matrix": (weights(lambda tensor: tensor.repeat(2, 1)), "fc1 has another shape"),
    "another bias": (weights(lambda each: each.repeat(2, 1), name="final_logits_bias"), "_bias has another"),
    "fewer rows": (weights(lambda each: each[:-1].clone(), name="model.shared.weight"), "rows for .* words"),
    "a number": (weights(lambda tensor: torch.ones(())), "fc1 has another shape"),
    "padding before the first id": (
        edit("config.json", pad_token_id=-1, bad_words_ids=None), "pad_token_id and"
    ),
    "EOS as a word": (edit("config.json", eos_token_id=7), "pad_token_id and eos_token_id"),
    "a word as the start": (edit("config.json", decoder_start_token_id=5), "decoder_start_token_id one of"),
    "many positions": (edit("config.json", max_position_embeddings=10**12), "max_position_embeddings: "),
    "many layers": (edit("config.json", encoder_layers=10**9), "encoder_layers: "),
    "an odd width": (edit("config.json", d_model=33), "not those of its config.json: .* width 33"),
    "heads that do not fit": (
        edit("config.json", encoder_attention_heads=5, decoder_attention_heads=5), "multiple of model.num"
    ),
    "ids that are no numbers": (edit("vocab.json", **{"<unk>": "1"}), "its ids are not 0, 1, 2"),
    "a long entry": (edit("vocab.json", **{"a" * 3_000_000: 500}), "entries of 3,00.,... characters"),
    "a large vocabulary": (
        lambda folder: (folder / "vocab.json").write_text(json.dumps({str(n): n for n in range(10**6)})),
        "vocab.json: it is larger than|vocab.json has entries of",
    ),
    "BPE": with_option("trainer_spec", "model_type", 2),
    "bytes": with_option("trainer_spec", "byte_fallback", 1),
    "spaces behind words": with_option("trainer_spec", "treat_whitespace_as_suffix", 1),
    "spaces that count": with_option("normalizer_spec", "remove_extra_whitespaces", 0),
    "no first space": with_option("normalizer_spec", "add_dummy_prefix", 0),
    "a piece of a user": (in_pieces(lambda model: setattr(model.pieces[9], "type", 4)), "only unigram"),
    "rules of another size": (in_rules(0, b"\xff" * 4), "source.spm cannot be used"),
    "damaged rules": (in_rules(4, NOISE), "source.spm cannot be used"),
    "rules that are damaged for few characters": (in_rules(144_000, NOISE), "source.spm cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_imported_is_named(name: str, original: Original, tmp_path: Path) -> None:
    change, message = WRONG[name]
    change(original.folder)
    with pytest.raises(DataError, match=message):
        imported(original, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_of_two_imports_at_once_one_wins(
    original: Original, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = CheckpointStore.save

    def save_when_another_has_ended(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        assert imported(original, tmp_path / "run").src_tokenizer.size > 200
        return save(*arguments, **options)

    monkeypatch.setattr(CheckpointStore, "save", save_when_another_has_ended)
    with pytest.raises(FileExistsError, match="another process has made it"):
        imported(original, tmp_path / "run")
    assert {path.name for path in tmp_path.iterdir()} == {"original", "run"}


def test_an_imported_run_is_not_replaced_nor_continued(original: Original, tmp_path: Path) -> None:
    # A language that is given is preferred to what the model says.
    data = imported(original, tmp_path / "run", "aa").config.data
    assert (data.src, data.tgt) == ("aa", "yy")
    with pytest.raises(RunError, match="exists: name another run"):
        imported(original, tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"was imported from .* mt init --init-from"):
        CheckpointStore(tmp_path / "run" / "checkpoints").resumable()
