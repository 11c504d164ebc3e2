"""`mt import` against Marian models of `transformers` with random weights and SentencePiece models trained here."""

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from mt.errors import DataError, RunError
from mt.export.export import export_model
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.score import label_log_probs
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

SHAPES: dict[str, dict[str, Any]] = {
    "opus": {"activation_function": "swish", "scale_embedding": True},
    "separate vocabularies": {"share_encoder_decoder_embeddings": False, "scale_embedding": True},
    "embeddings that are not scaled": {"activation_function": "gelu", "scale_embedding": False},
    "an untied output": {"tie_word_embeddings": False, "scale_embedding": True, "activation_function": "relu"},
    "another depth and width": {"encoder_layers": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "scale_embedding": True},
    "EOS as decoder start": {"scale_embedding": True, "activation_function": "silu", "starts_with_eos": True},
}  # fmt: skip
CODE = ">>de<<"


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
    sizes = {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
    }
    config = transformers.MarianConfig(
        **sizes | {"activation_function": "swish"} | shape,
        vocab_size=len(ids[0]), decoder_vocab_size=len(ids[1]), encoder_attention_heads=4,
        decoder_attention_heads=4, max_position_embeddings=40, pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=0 if starts_with_eos else pad, bad_words_ids=[[pad]],
    )  # fmt: skip
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(seed)
        model = transformers.MarianMTModel(config).eval()
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(
                    torch.randn_like(parameter), alpha=0.3 if "embed" in name or "norm" in name else 0.15
                )
        model.final_logits_bias = torch.randn_like(model.final_logits_bias)
        # Translations end now and then.
        model.final_logits_bias[0, 0] += 3.0
    model.save_pretrained(folder)
    for name, file in pieces.items():
        shutil.copy(file, folder / f"{name}.spm")
    (folder / "vocab.json").write_text(json.dumps(ids[0]))
    if not is_shared:
        (folder / "target_vocab.json").write_text(json.dumps(ids[1]))
    about = {"source_lang": "xx", "target_lang": "yy", "separate_vocabs": not is_shared}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return Original(folder, model, transformers.MarianTokenizer.from_pretrained(folder))


def imported(original: Original, run: Path) -> LoadedModel:
    from mt.export.marian import import_marian

    import_marian(str(original.folder), RunDirectory(run), src=None, tgt=None)
    return load_model(RunDirectory(run), "best")


@pytest.fixture(params=SHAPES)
def both(
    request: pytest.FixtureRequest, pieces: dict[str, Path], tmp_path: Path
) -> Iterator[tuple[Original, LoadedModel, Path]]:
    original = make_original(tmp_path / "original", pieces, **SHAPES[request.param])
    yield original, imported(original, tmp_path / "run"), tmp_path / "run"


def test_logits_and_tokens_are_those_of_transformers(both: tuple[Original, LoadedModel, Path]) -> None:
    original, loaded, _ = both
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
    ids = (
        original.tokenizer.target_encoder
        if original.tokenizer.separate_vocabs
        else original.tokenizer.encoder
    )
    entries = loaded.tgt_tokenizer.tokens(range(loaded.tgt_tokenizer.size))
    rows = [ids.get(entry.lstrip("\ue000"), start) for entry in entries]
    ours = slice(UNK_ID, None) if start else slice(EOS_ID, None)
    torch.testing.assert_close(logits[:, ours], expected[:, rows][:, ours], atol=1e-5, rtol=1e-5)
    # One of the four special tokens has no id of its own there.
    added = BOS_ID if start == 0 else PAD_ID
    assert logits.softmax(-1)[:, added].max() < 1e-6


ODD = [
    "  two   spaces ", "ﬁne ① ½", "日本語 text 日本", "don't", "e\u0301", "a\u00a0b\tc", "Ba" * 30, "\u200b", "Q", "?!",
]  # fmt: skip


def test_language_codes_stand_for_themselves(pieces: dict[str, Path], tmp_path: Path) -> None:
    original = make_original(tmp_path / "original", pieces)
    loaded = imported(original, tmp_path / "run")
    text = f"{CODE} {sentences(0, 1)[0]}"
    ids = loaded.src_tokenizer.encode(text)
    assert loaded.src_tokenizer.tokens(ids)[0] == CODE
    assert [*loaded.src_tokenizer.tokens(ids), "</s>"] == original.tokenizer.convert_ids_to_tokens(
        original.tokenizer(text).input_ids
    )
