"""The folder that `transformers` loads: Marian for post-norm models, Pegasus for pre-norm ones."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from mt.config.model import ModelConfig
from mt.data.batches.batch import collate
from mt.data.tokenizers.tokenizer import direction_name, normalise_spacing
from mt.export.marian_layout import OPTIONS, layers, permuted, sines_first
from mt.inference.engines import Sentences
from mt.inference.exported_folder import ExportPrecision, Target, read_export_record
from mt.inference.loaded_model import LoadedModel
from mt.inference.verify import Score, Translate
from mt.search.hypothesis import length_limit
from mt.search.strategy import Beam, Strategy
from mt.special_tokens import BOS, BOS_ID, EOS, EOS_ID, PAD, PAD_ID, UNK, UNK_ID
from mt.transformer.transformer import Transformer

NAME: Target = "transformers"
EXACT = ["greedy search"]
"""With a beam, it ranks unfinished translations otherwise."""
DIFFERENCES = [
    "The limit of `generate` is `max_new_tokens`, here the most that the model writes.",
    "`generate` needs `early_stopping=True` to stop as mt does.",
]
PRECISIONS: dict[ExportPrecision, torch.dtype] = {"float32": torch.float32, "bf16": torch.bfloat16}
SPECIAL_IDS = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
SIDES = ("source_tokenizer", "target_tokenizer")
"""The subfolders of the tokenizers, if source and target have separate vocabularies."""

EXAMPLE = """\
# Translates the lines of standard input; needs: pip install transformers torch
import json, pathlib, sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = pathlib.Path(__file__).parent
record = json.loads((folder / "mt_export.json").read_text(encoding="utf-8"))
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
names = [folder / f"{side}_tokenizer" for side in ("source", "target")]
src, tgt = (AutoTokenizer.from_pretrained(name if name.is_dir() else folder) for name in names)
beam = int(sys.argv[1]) if len(sys.argv) > 1 else 1
options = {"num_beams": beam, "early_stopping": True} if beam > 1 else {}
languages = sorted({language for _, language in record["directions"]}) or [record["tgt"]]
to = (sys.argv[2:] or languages)[0]
if to not in languages or (len(languages) > 1 and not sys.argv[2:]):
    sys.exit("say into which language: example.py BEAM " + "|".join(languages))
# Reserved entries of the vocabulary are not read from text; suppress_tokens has those that could be written.
reserved = src.convert_tokens_to_ids(record["reserved"])
start = src.convert_tokens_to_ids([name for name in record["reserved"] if name == f"<to:{to}>"])
for stream in (sys.stdin, sys.stdout):
    stream.reconfigure(encoding="utf-8")
for line in sys.stdin:
    pieces = src(line, truncation=True, max_length=record["max_length"] - len(start)).input_ids
    pieces = [src.unk_token_id if piece in reserved else piece for piece in pieces]
    inputs = torch.tensor([start + pieces])
    ids = model.generate(inputs, attention_mask=torch.ones_like(inputs), **options)
    print(" ".join(tgt.decode(ids[0], skip_special_tokens=True).split()) if line.strip() else "", flush=True)
"""


def write(loaded: LoadedModel, folder: Path, precision: ExportPrecision) -> None:
    """Write a model, which is on the CPU and in float32, and its tokenizers into an existing folder."""
    logging.disable_progress_bar()
    model = loaded.model
    max_length = loaded.config.data.max_length
    src_tokenizer = loaded.src_tokenizer
    tgt_tokenizer = loaded.tgt_tokenizer
    theirs = _empty_model(loaded.config.model, src_tokenizer.size, tgt_tokenizer.size, max_length)
    weights = _embeddings(model, theirs)
    order = sines_first(model.output.in_features)
    for name, (_, module) in layers(model).items():
        weight = module.weight.detach()
        # Zeros are equivalent to a layer without a bias.
        bias = torch.zeros(len(weight)) if module.bias is None else module.bias.detach()
        weights[f"{name}.weight"], weights[f"{name}.bias"] = permuted(name, weight, bias, order)
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    # Positions are computed by a formula.
    odd = [*unexpected, *(name for name in missing if "embed_positions" not in name)]
    assert not odd, odd
    theirs.generation_config = GenerationConfig(
        max_new_tokens=max_length,
        decoder_start_token_id=BOS_ID,
        **SPECIAL_IDS,
        suppress_tokens=[PAD_ID, UNK_ID, BOS_ID, *tgt_tokenizer.reserved.values()],
        # The others share their probability, as in our search.
        renormalize_logits=True,
    )
    theirs.to(PRECISIONS[precision]).save_pretrained(folder)
    # It is created as a temporary file, which nobody else may read.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")
    is_shared = src_tokenizer.to_json() == tgt_tokenizer.to_json()
    for tokenizer, side in zip((src_tokenizer, tgt_tokenizer), SIDES, strict=True):
        ours = tokenizers.Tokenizer.from_str(tokenizer.to_json())
        ours.post_processor = TemplateProcessing(single=f"$A {EOS}", special_tokens=[(EOS, EOS_ID)])
        PreTrainedTokenizerFast(
            tokenizer_object=ours,
            pad_token=PAD,
            unk_token=UNK,
            bos_token=BOS,
            eos_token=EOS,
            model_max_length=max_length,
            # Text that looks like a special token stays text.
            split_special_tokens=True,
            clean_up_tokenization_spaces=False,
            model_input_names=["input_ids", "attention_mask"],
        ).save_pretrained(folder if is_shared else folder / side)


def load(folder: Path) -> tuple[Translate, Score]:
    """Load an exported folder, to translate texts that the model can read at once."""
    record = read_export_record(folder)
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    src, tgt = (
        AutoTokenizer.from_pretrained(folder / side if (folder / side).is_dir() else folder) for side in SIDES
    )
    name = direction_name(record.tgt)
    start = [src.convert_tokens_to_ids(name)] if name in record.reserved else []

    def translate(texts: Sequence[str], strategy: Strategy) -> list[str]:
        beam = {"num_beams": strategy.size, "early_stopping": True} if isinstance(strategy, Beam) else {}
        ids: list[list[int]] = [[*start, *row] for row in src(list(texts)).input_ids]
        translations = [""] * len(texts)
        # A call has one limit, which ours has for each length.
        for length in set(map(len, ids)):
            indices = [index for index, row in enumerate(ids) if len(row) == length]
            limit = length_limit(length, record.max_length, target_ratio=record.target_ratio)
            batch = torch.tensor([ids[index] for index in indices])
            outputs = model.generate(batch, max_new_tokens=limit, **beam)
            for index, text in zip(indices, tgt.batch_decode(outputs, skip_special_tokens=True), strict=True):
                translations[index] = normalise_spacing(text)
        return translations

    @torch.inference_mode()
    def score(sentences: Sentences) -> list[list[float]]:
        scores = []
        for sentence in sentences:
            batch = collate([sentence.ids], [sentence.prefix])
            logits = model(input_ids=batch.src_ids, decoder_input_ids=batch.tgt_ids).logits
            log_probs = logits.log_softmax(-1).gather(-1, batch.labels[..., None])
            scores.append(log_probs.flatten().tolist())
        return scores

    return translate, score


def _empty_model(config: ModelConfig, src_size: int, tgt_size: int, max_length: int) -> PreTrainedModel:
    is_one = config.share_embeddings and config.tie_output
    sizes = {
        **{theirs: getattr(config, ours) for theirs, ours in OPTIONS.items()},
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        # One more than a sentence may have, for the last step of a search that has reached the limit.
        "max_position_embeddings": max_length + 1,
        **SPECIAL_IDS,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    if config.norm_first:
        # It has a single vocabulary size, and shares either all embeddings or none.
        return PegasusForConditionalGeneration(
            PegasusConfig(**sizes, vocab_size=max(src_size, tgt_size), tie_word_embeddings=is_one)
        )
    return MarianMTModel(
        MarianConfig(
            **sizes,
            vocab_size=src_size,
            decoder_vocab_size=tgt_size,
            share_encoder_decoder_embeddings=is_one,
            tie_word_embeddings=config.tie_output,
        )
    )


def _embeddings(model: Transformer, theirs: PreTrainedModel) -> dict[str, Tensor]:
    """The permuted embeddings by all their names in `transformers`, in their sizes there."""
    order = sines_first(model.output.in_features)
    tgt = model.tgt_embedding.tokens.weight
    output = model.output.weight
    ours = {
        "model.encoder.embed_tokens.weight": model.src_embedding.tokens.weight,
        "model.decoder.embed_tokens.weight": tgt,
        "lm_head.weight": output,
    }
    names = theirs.state_dict()
    if "model.shared.weight" in names:
        # Every Pegasus has it, even if nothing is computed with it.
        ours["model.shared.weight"] = tgt
    # Rows that only pad the smaller vocabulary must not get any probability.
    bias = torch.zeros(1, len(names["lm_head.weight"]))
    bias[:, len(output) :] = -torch.inf
    if model.output.bias is not None:
        bias[:, : len(output)] = model.output.bias.detach()
    padded = {"final_logits_bias": bias}
    for name, weight in ours.items():
        num_rows = len(names[name]) - len(weight)
        padded[name] = pad(weight.detach()[:, order], (0, 0, 0, num_rows))
    return padded
