"""Every variant of the model translates in CTranslate2 and in transformers as it does here."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from mt.export.export import export_model
from mt.export.target import ExportTarget
from mt.inference.loaded_model import LoadedModel
from mt.inference.model_translator import ModelTranslator
from mt.search.strategy import Beam

NUM_QUICK = 24
FIRST_SEED = 60
CELLS = list(product(("pre", "post"), ("tied", "untied"), ("word", "bpe"), ("bias", "none")))
NAMES = ["-".join(cell) for cell in CELLS]
TARGETS = ["ctranslate2", "transformers"]
# All cells with 200 sentences take long. In the quick tests each program has one half of them, in which every
# two values meet.
MATRIX = [
    pytest.param(cell, target, number, marks=marks, id=f"{name}-{target}-{number}")
    for place, (cell, name) in enumerate(zip(CELLS, NAMES, strict=True))
    for half, target in enumerate(TARGETS)
    for number, marks in ((NUM_QUICK, ()), (200, pytest.mark.slow))
    if number == 200 or place.bit_count() % 2 == half
]
Pairs = tuple[list[str], list[str]]


def _target(name: str) -> ExportTarget:
    pytest.importorskip(name)
    if name == "ctranslate2":
        from mt.export.ctranslate2_target import CTRANSLATE2

        return CTRANSLATE2
    from mt.export.transformers_target import TRANSFORMERS

    return TRANSFORMERS


def _overrides(norm: str, output: str, kind: str, bias: str) -> list[str]:
    tokenizer = ["tokenizer.kind=bpe", "tokenizer.max_size=330"] if kind == "bpe" else []
    return [
        f"model.norm_first={'true' if norm == 'pre' else 'false'}",
        f"model.tie_output={'true' if output == 'tied' else 'false'}",
        f"model.bias={'true' if bias == 'bias' else 'false'}",
        # Both activations, and one vocabulary or two, are in the matrix as well.
        f"model.activation={'relu' if norm == 'pre' else 'gelu'}",
        *tokenizer,
        *(
            ["tokenizer.shared=true", "model.share_embeddings=true"]
            if bias == "bias" and kind == "bpe"
            else []
        ),
    ]


def _check(loaded: LoadedModel, target: ExportTarget, pairs: Pairs, folder: Path, number: int) -> None:
    sources, references = pairs[0][:number], pairs[1][:number]
    exported = export_model(
        loaded,
        folder,
        target,
        run_name="tiny",
        precision="float32",
        sources=sources,
        references=references,
    )
    greedy, beam = exported.agreements
    assert greedy.num_sentences == beam.num_sentences == number
    assert greedy.num_same == number
    assert beam.num_same >= number - number // 200
    assert all(each.is_near_tie for each in beam.mismatches)


@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
def test_the_outputs_of_these_models_vary(
    cell: tuple[str, str, str, str], make_loaded: Callable[..., LoadedModel], pairs: Pairs
) -> None:
    loaded = make_loaded(*_overrides(*cell), seed=FIRST_SEED + CELLS.index(cell))
    translator = ModelTranslator.from_loaded(loaded, device=torch.device("cpu"))
    segments = translator.read(pairs[0][:NUM_QUICK])
    found = [best for strategy in (None, Beam(5)) for best, *_ in translator.search(segments, strategy)]
    assert len({tuple(each.ids) for each in found}) >= NUM_QUICK // 4
    # Some end by themselves, and some at their limit.
    assert 1 < sum(each.finished for each in found) < len(found) - 1


@pytest.mark.parametrize(("cell", "target_name", "number"), MATRIX)
def test_a_model_translates_there_as_here(
    cell: tuple[str, str, str, str],
    target_name: str,
    number: int,
    make_loaded: Callable[..., LoadedModel],
    pairs: Pairs,
    tmp_path: Path,
) -> None:
    target = _target(target_name)
    loaded = make_loaded(*_overrides(*cell), seed=FIRST_SEED + CELLS.index(cell))
    _check(loaded, target, pairs, tmp_path / "out", number)


@pytest.mark.parametrize(
    "target_name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "transformers" else []) for name in TARGETS],
)
@pytest.mark.parametrize(
    "overrides",
    [
        ["tokenizer.kind=file", "tokenizer.path=tokenizer.json", "tokenizer.shared=true"],
        ["tokenizer.kind=char", "tokenizer.max_size=330", "data.max_length=100"],
        ["tokenizer.kind=bpe_metaspace", "tokenizer.max_size=330", "data.max_length=60"],
        ["tokenizer.shared=true", "model.share_embeddings=true", "model.tie_output=false"],
        ["model.num_encoder_layers=1", "model.num_decoder_layers=3", "model.num_heads=1", "model.d_ff=48"],
        ["training.guided_alignment=0.5", "model.norm_first=false"],
    ],
    ids=["external", "characters", "metaspace", "shared-and-untied", "other-sizes", "guided"],
)
def test_so_do_other_tokenizers_sizes_and_ways_to_share(
    overrides: list[str],
    target_name: str,
    make_loaded: Callable[..., LoadedModel],
    pairs: Pairs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    _word_pieces([*pairs[0], *pairs[1]]).save("tokenizer.json")
    _check(make_loaded(*overrides), _target(target_name), pairs, tmp_path / "out", NUM_QUICK)


def _word_pieces(texts: list[str]) -> tokenizers.Tokenizer:
    """A tokenizer as other programs make them, with names of its own for special tokens."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special))
    tokenizer.add_tokens(["two red"])
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer
