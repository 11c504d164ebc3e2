"""Importing Marian models in the layout of `transformers`, such as those of OPUS-MT, as runs."""

import json
import logging
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import safetensors.torch
import torch
from huggingface_hub import snapshot_download
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor, nn

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.data import IMPORTED
from mt.config.explain import first_complaint
from mt.config.write import config_to_yaml
from mt.data.sources.find import HUB_ID
from mt.data.sources.hub import error_text, hub
from mt.data.tokenizers.sentencepiece import read_sentencepiece
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import DataError, MtError, RunError
from mt.export.marian_layout import OPTIONS, layers, permuted, sines_first
from mt.files import make_folder, new_folder, read_text
from mt.inference.loaded_model import build_model, tokenizer_checksums
from mt.run_directory import RunDirectory
from mt.special_tokens import BOS_ID, EOS, PAD, PAD_ID, SPECIAL_TOKENS, UNK
from mt.transformer.weights import without_memory

LOG = logging.getLogger(__name__)

CONFIG, SAFE, PICKLED = "config.json", "model.safetensors", "pytorch_model.bin"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_WANTED = [SAFE, PICKLED, "*.spm", "*.json"]
_MAX_BYTES, _MAX_CHARACTERS = 2**23, 2_000_000
"""Of a JSON file, and of all entries in a vocabulary, for each of which `tokenizers` takes 500 bytes."""
_Size = Annotated[int, Field(ge=1, le=2**16)]
_NEVER = -100.0
"""The bias of an entry that the imported model does not have: its probability is 0."""
_LEARNING_RATE = 2e-4
"""What adapting takes half of, as of a run of ours."""
_HUB_SECONDS = 10.0


class _Marian(BaseModel):
    """What a ``config.json`` says about the model, of some values only those that we compute."""

    model_type: Literal["marian"]
    d_model: _Size
    encoder_layers: _Size
    decoder_layers: _Size
    encoder_attention_heads: _Size
    decoder_attention_heads: _Size
    encoder_ffn_dim: _Size
    decoder_ffn_dim: _Size
    activation_function: Literal["swish", "silu", "relu", "gelu"]
    max_position_embeddings: _Size
    pad_token_id: int
    eos_token_id: int
    decoder_start_token_id: int
    dropout: float = 0.1
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    static_position_embeddings: Literal[True] = True
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    bad_words_ids: list[list[int]] | None = None

    @model_validator(mode="after")
    def _check_both_stacks(self) -> Self:
        of_encoder = self.encoder_attention_heads, self.encoder_ffn_dim
        of_decoder = self.decoder_attention_heads, self.decoder_ffn_dim
        if of_encoder != of_decoder:
            raise ValueError(f"the heads and width of encoder {of_encoder} and decoder {of_decoder} differ")
        if self.bad_words_ids not in (None, [[self.pad_token_id]]):
            raise ValueError(f"bad_words_ids are {self.bad_words_ids}, not the id of padding alone")
        return self


@dataclass(frozen=True)
class _Side:
    """The tokenizer of a side, and its vocabulary by our ids."""

    tokenizer: Tokenizer
    rows: Tensor
    """The id there of each entry, ``(V,)``."""
    added: int
    """Our id of the entry that is another one there: PAD or EOS is the start of a translation."""


def import_marian(source: str, run: RunDirectory, *, src: str | None, tgt: str | None) -> None:
    """Make a run of the model in a folder, or on the Hub; it appears whole, or not at all."""
    if run.path.exists():
        raise RunError(f"{run.path} exists: name another run with --run PATH.")
    folder = Path(source).expanduser()
    if not folder.is_dir():
        if not HUB_ID.fullmatch(source):
            what = "neither a folder nor a Hub id such as Helsinki-NLP/opus-mt-en-de"
            raise DataError(f"{source!r} is {what}.")
        with hub(source, _HUB_SECONDS):
            folder = Path(snapshot_download(source, allow_patterns=_WANTED))
        LOG.info("%s, at commit %s", source, folder.name)
    elif not (folder / CONFIG).is_file():
        raise DataError(f"{folder} has no {CONFIG}: it is no model in the layout of transformers.")
    with _explained(f"{folder / CONFIG}: this model cannot be imported", ValidationError):
        theirs = _Marian.model_validate(_read_json(folder / CONFIG))
    named = _read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    src = src or named.get("source_lang")
    tgt = tgt or named.get("target_lang")
    if not (src and tgt):
        raise DataError(f"{folder} does not name its languages: give them with --src and --tgt.")
    if not (folder / VOCABULARY).exists():
        raise DataError(f"{folder} has no {VOCABULARY}, so no text can be encoded.")
    tgt_vocabulary = VOCABULARY if theirs.share_encoder_decoder_embeddings else TARGET_VOCABULARY
    sides = {
        "src": _read_side(folder / VOCABULARY, folder / "source.spm", theirs),
        "tgt": _read_side(folder / tgt_vocabulary, folder / "target.spm", theirs),
    }
    weights = _read_weights(folder)
    with _explained(f"the weights in {folder} are not those of its {CONFIG}", LookupError, ValueError):
        embeddings = _embeddings(weights, theirs)
        config = _config(theirs, src, tgt, shares_embeddings=embeddings[0] is embeddings[1])
        with without_memory():
            model = build_model(config, sides["src"].tokenizer, sides["tgt"].tokenizer)
        ours = _our_weights(weights, embeddings, theirs, sides, layers(model))
        # Tied ones by their first names alone.
        ours = {name: ours[name] for name in model.weights()}
        if odd := [name for name, weight in ours.items() if not weight.isfinite().all()]:
            raise ValueError(f"{odd[0]} contains NaN or infinite values")
    make_folder(run.path.absolute().parent)
    with new_folder(run.path.absolute(), replaces=False) as partial:
        made = RunDirectory(partial)
        made.config_file.write_text(config_to_yaml(config), encoding="utf-8")
        sides["src"].tokenizer.save(made.src_tokenizer_file)
        sides["tgt"].tokenizer.save(made.tgt_tokenizer_file)
        checkpoint = Checkpoint(
            step=0,
            best=True,
            tokenizers=tokenizer_checksums(made),
            imported_from=source,
            computation=config.computation(),
        )
        CheckpointStore(made.checkpoints_dir).save(checkpoint, ours)


@contextmanager
def _explained(problem: str, *errors: type[Exception]) -> Iterator[None]:
    """Explain these errors, and a panic of `tokenizers`, which is no Exception, as a problem of a file."""
    try:
        yield
    except MtError:
        raise
    except BaseException as error:
        if not isinstance(error, errors) and type(error).__name__ != "PanicException":
            raise
        reason = first_complaint(error) if isinstance(error, ValidationError) else error_text(error)
        raise DataError(f"{problem}: {getattr(error, 'strerror', None) or reason}.") from error


def _read_json(path: Path) -> dict[str, Any]:
    with _explained(f"cannot read {path}", OSError, ValueError, RecursionError):
        content = json.loads(read_text(path, max_bytes=_MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is not an object of JSON")
    return content


def _config(theirs: _Marian, src: str, tgt: str, *, shares_embeddings: bool) -> Config:
    model = {
        **{ours: getattr(theirs, name) for name, ours in OPTIONS.items()},
        "activation": theirs.activation_function.replace("silu", "swish"),
        "norm_first": False,
        "share_embeddings": shares_embeddings,
        # Our embeddings are always scaled, the output projection never.
        "tie_output": theirs.tie_word_embeddings and theirs.scale_embedding,
        "output_bias": True,
    }
    is_shared = theirs.share_encoder_decoder_embeddings or shares_embeddings
    return Config.model_validate(
        {
            "data": {"path": IMPORTED, "src": src, "tgt": tgt, "max_length": theirs.max_position_embeddings},
            # Its tokenizers have rules of their own.
            "cleaning": {"unicode_form": "none", "invisible": "keep"},
            "tokenizer": {"kind": "imported", "shared": is_shared},
            "model": model,
            "schedule": {"kind": "constant", "learning_rate": _LEARNING_RATE},
            "training": {"max_steps": 1},
        }
    )


def _read_side(path: Path, sentencepiece: Path, theirs: _Marian) -> _Side:
    """Our four special tokens, then their other entries in order."""
    ids = _read_json(path)
    start = theirs.decoder_start_token_id
    if (size := sum(map(len, ids))) > _MAX_CHARACTERS:
        raise DataError(f"{path} has entries of {size:,} characters; at most {_MAX_CHARACTERS:,} are read.")
    numbers = sorted(number for number in ids.values() if type(number) is int)
    if UNK not in ids or numbers != list(range(len(ids))):
        raise DataError(f"{path} is no vocabulary: it lacks {UNK}, or its ids are not 0, 1, 2 and so on.")
    pad = theirs.pad_token_id
    eos = theirs.eos_token_id
    if ids.get(PAD) != pad or ids.get(EOS) != eos or start not in (pad, eos):
        raise DataError(
            f"pad_token_id and eos_token_id of {CONFIG} must be those of {PAD} and {EOS} in {path}, "
            "and decoder_start_token_id one of both."
        )
    first = [pad, ids[UNK], start, eos]
    others = sorted(ids.keys() - {PAD, UNK, EOS}, key=ids.__getitem__)
    with _explained(f"{sentencepiece} cannot be used as a tokenizer", Exception):
        tokenizer = read_sentencepiece(sentencepiece, [*SPECIAL_TOKENS, *others])
    rows = torch.tensor([*first, *(ids[entry] for entry in others)])
    return _Side(tokenizer, rows, PAD_ID if start == pad else BOS_ID)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a file, which have no more values than it has room for."""
    path = folder / SAFE if (folder / SAFE).exists() else folder / PICKLED
    if not path.exists():
        raise DataError(f"{folder} has neither {SAFE} nor {PICKLED}, so it has no weights.")
    num_bytes = path.stat().st_size
    # Of the file system, safetensors, torch and its unpickler.
    with _explained(f"the weights in {folder} cannot be read", Exception):
        if path.name == SAFE:
            weights = safetensors.torch.load_file(path)
        else:
            LOG.info("reading %s, a pickle, by torch with weights_only=True, which runs no code of it", path)
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    if sum(part.file_size for part in archive.infolist()) > num_bytes:
                        raise ValueError("it is compressed, unlike what torch writes")
            weights = torch.load(path, map_location="cpu", weights_only=True)
        for name, tensor in weights.items():
            if tensor.layout != torch.strided or tensor.is_meta or not tensor.is_floating_point():
                raise ValueError(f"{name} does not consist of floating-point numbers")
        # At least two bytes each; a tied matrix may have four names.
        if sum(tensor.numel() for tensor in weights.values()) > 2 * num_bytes:
            raise ValueError(f"its {num_bytes:,} bytes are too few for the values of its tensors")
    return weights


def _embeddings(weights: Mapping[str, Tensor], theirs: _Marian) -> tuple[Tensor, Tensor, Tensor]:
    """Source, target and output ``(V, D)``; tied ones, saved under any of their names, are one tensor."""

    def first(*names: str) -> Tensor:
        for name in names:
            if f"{name}.weight" in weights:
                return weights[f"{name}.weight"]
        raise LookupError("an embedding is missing")

    tied = theirs.tie_word_embeddings
    src = first("model.encoder.embed_tokens", "model.shared", "model.decoder.embed_tokens")
    tgt = first("model.decoder.embed_tokens", "model.shared", *(["lm_head"] if tied else []))
    output = tgt if tied else first("lm_head")
    if any(matrix.shape[1:] != (theirs.d_model,) for matrix in (src, tgt, output)):
        raise ValueError(f"an embedding does not have the width {theirs.d_model}")
    if torch.equal(src, tgt):
        src = tgt
    return src, tgt, output


def _our_weights(
    weights: Mapping[str, Tensor],
    embeddings: tuple[Tensor, Tensor, Tensor],
    theirs: _Marian,
    sides: Mapping[str, _Side],
    named: Mapping[str, tuple[str, nn.Module]],
) -> dict[str, Tensor]:
    """All weights by our names: the hidden dimensions and the vocabulary in our order."""
    order = sines_first(theirs.d_model).argsort()
    scale = 1.0 if theirs.scale_embedding else theirs.d_model**-0.5
    ours: dict[str, Tensor] = {}
    for name, (our_name, module) in named.items():
        parts = weights[f"{name}.weight"].float(), weights[f"{name}.bias"].float()
        if [part.shape for part in parts] != [weight.shape for weight in module.parameters()]:
            raise ValueError(f"{name} has another shape")
        for part, tensor in zip(("weight", "bias"), permuted(name, *parts, order), strict=True):
            ours[f"{our_name}.{part}"] = tensor.contiguous()

    def rows(values: Tensor, side: str) -> Tensor:
        wanted = sides[side].rows
        if int(wanted.max()) >= len(values):
            raise ValueError(f"there are {len(values):,} rows for {len(wanted):,} words ({side})")
        return values.float()[wanted]

    src, tgt, output = embeddings
    ours["src_embedding.tokens.weight"] = rows(src[:, order], "src") * scale
    ours["tgt_embedding.tokens.weight"] = rows(tgt[:, order], "tgt") * scale
    ours["output.weight"] = rows(output[:, order], "tgt")
    bias = weights.get("final_logits_bias", torch.zeros(1, len(output)))
    if bias.shape != (1, len(output)):
        raise ValueError("final_logits_bias has another shape")
    ours["output.bias"] = rows(bias[0], "tgt")
    ours["output.bias"][sides["tgt"].added] = _NEVER
    return ours
