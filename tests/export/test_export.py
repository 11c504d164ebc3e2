"""Every variant of the model translates in CTranslate2 and in transformers as here, or nothing is written."""

import io
import json
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from mt.errors import ConfigError, EngineError
from mt.export.export import export_model
from mt.inference.engine.load import load_exported
from mt.inference.engines import Rules, Sentence
from mt.inference.loaded_model import LoadedModel, build_model
from mt.inference.model_translator import ModelTranslator
from mt.search.hypothesis import length_limit
from mt.search.strategy import Beam
from mt.special_tokens import EOS_ID
from tests.export.conftest import WIDTH, MakeLoaded, Pairs

NUM_QUICK = 24
FIRST_SEED = 60
CELLS: list[tuple[str, ...]] = list(
    product(("pre", "post"), ("tied", "untied"), ("word", "bpe"), ("bias", "none"))
)
LIBRARIES = ["ctranslate2", "transformers"]
# All cells with 200 sentences take long. In the quick tests each library has one half of them, in which every
# two values meet.
MATRIX = [
    pytest.param(cell, library, number, marks=marks, id=f"{'-'.join(cell)}-{library}-{number}")
    for index, cell in enumerate(CELLS)
    for half, library in enumerate(LIBRARIES)
    for number, marks in ((NUM_QUICK, ()), (200, pytest.mark.slow))
    if number == 200 or index.bit_count() % 2 == half
]


def library_of(name: str) -> ModuleType:
    pytest.importorskip(name)
    return import_module(f"mt.export.{name}_model")


def export(
    loaded: LoadedModel, library: ModuleType, pairs: Pairs, folder: Path, number: int = 12, **options: Any
) -> Sequence[Any]:
    both = list(zip(pairs[0][:number], pairs[1][:number], strict=True))
    return export_model(loaded, "tiny", both, folder, library, **options)[1]


def overrides_of(norm: str, output: str, kind: str, bias: str) -> list[str]:
    is_shared = (bias, kind) == ("bias", "bpe")
    return [
        f"model.norm_first={norm == 'pre'}".lower(),
        f"model.tie_output={output == 'tied'}".lower(),
        f"model.bias={bias == 'bias'}".lower(),
        # Both activations, and one vocabulary or two, are in the matrix as well.
        f"model.activation={'relu' if norm == 'pre' else 'gelu'}",
        *(["tokenizer.kind=bpe", "tokenizer.max_size=330"] if kind == "bpe" else []),
        f"tokenizer.shared={is_shared}".lower(),
        f"model.share_embeddings={is_shared}".lower(),
    ]


def check(loaded: LoadedModel, name: str, pairs: Pairs, folder: Path, number: int) -> None:
    greedy, beam = export(loaded, library_of(name), pairs, folder, number)
    assert greedy.num_same == greedy.num_sentences
    assert beam.num_same >= (beam.num_sentences - 1 if name == "ctranslate2" else 1)
    card = (folder / "README.md").read_text()
    for each in (greedy, beam):
        bleu = f"{each.our_bleu:.2f} | {each.their_bleu:.2f} ({each.their_bleu - each.our_bleu:+.2f})"
        assert f"| {each.strategy} | {each.num_sentences} | {each.num_same} | {bleu} |" in card
    most = f"It reads and writes at most {loaded.config.data.max_length} tokens."
    assert rf"to {name} in float32 from checkpoint step\_0000001 of the run tiny. {most}" in card
    loses_copies = loaded.config.copies_words and name == "transformers"
    assert ("Not in this folder: copying of unknown words" in card) == loses_copies


def test_sentences_that_mt_alone_would_split_are_not_compared(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    loaded, library = make_loaded(), library_of("ctranslate2")
    word = pairs[0][0].split()[0]
    # Of at most 20 tokens, one is EOS.
    lengths = ([5, 19, 20, 40], [20, 40])
    both, too_long = ([" ".join([word] * length) for length in each] for each in lengths)
    agreements = export(loaded, library, (both, both), tmp_path / "out")
    assert {each.num_sentences for each in agreements} == {2}
    with pytest.raises(EngineError, match="no validation sentences to verify the export with"):
        export(loaded, library, (too_long, too_long), tmp_path / "other")


def test_what_only_the_source_has_gets_no_probability(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    """A pre-norm model has one size for both vocabularies there."""
    dropout = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
    options = [f"model.{name}={share}" for name, share in dropout.items()]
    one = make_loaded("model.norm_first=true", "model.tie_output=false", *options)
    src, tgt = sorted((one.src_tokenizer, one.tgt_tokenizer), key=lambda each: -each.size)
    assert src.size > tgt.size
    model = build_model(one.config, src, tgt).eval()
    loaded = replace(one, model=model, src_tokenizer=src, tgt_tokenizer=tgt)
    out = tmp_path / "out"
    export(loaded, library_of("transformers"), pairs, out)
    # Who trains it there begins with the same options, and its search has the same limit.
    assert json.loads((out / "config.json").read_text()).items() >= dropout.items()
    assert json.loads((out / "generation_config.json").read_text())["max_new_tokens"] == 20
    tokenizer = json.loads((out / "source_tokenizer" / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == 20
    auto = transformers.AutoTokenizer.from_pretrained(out / "source_tokenizer")
    # What looks like a special token is text there, too.
    text = "the dog </s> <pad> <s>"
    assert auto(text).input_ids == [*src.encode(text), EOS_ID]
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode


@pytest.mark.parametrize(("cell", "library", "number"), MATRIX)
def test_a_model_translates_there_as_here(
    cell: tuple[str, ...], library: str, number: int, make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    loaded = make_loaded(*overrides_of(*cell), seed=FIRST_SEED + CELLS.index(cell))
    # Its outputs vary; some end by themselves, and some at their limit.
    translator = ModelTranslator(loaded, device=torch.device("cpu"))
    outputs = [
        hypothesis
        for strategy in (None, Beam(5))
        for best, *_ in translator.n_best(pairs[0][:NUM_QUICK], strategy=strategy)
        for _, hypothesis in best.parts
    ]
    assert len({tuple(each.ids) for each in outputs}) >= NUM_QUICK // 4
    assert 1 < sum(each.finished for each in outputs) < len(outputs) - 1
    check(loaded, library, pairs, tmp_path / "out", number)


@pytest.mark.parametrize("library", ["ctranslate2", pytest.param("transformers", marks=pytest.mark.slow)])
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
    library: str,
    make_loaded: MakeLoaded,
    pairs: Pairs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    word_pieces([*pairs[0], *pairs[1]]).save("tokenizer.json")
    check(make_loaded(*overrides), library, pairs, tmp_path / "out", NUM_QUICK)


def word_pieces(texts: list[str]) -> tokenizers.Tokenizer:
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


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_model_that_translates_otherwise_fails_and_leaves_nothing(
    name: str,
    precision: str,
    make_loaded: MakeLoaded,
    pairs: Pairs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, loaded = library_of(name), make_loaded()
    # What it writes itself is the reference, so that its BLEU is 100.
    own = ModelTranslator(loaded, device=torch.device("cpu")).translate(pairs[0][:12])
    both = pairs[0], [text or "." for text in own]

    write = library.write
    problem = "random sentences differ by" if precision == "float32" else r"BLEU changes from \d+\.\d+ to \d"
    monkeypatch.setattr(library, "write", lambda _, *arguments: write(make_loaded(seed=2), *arguments))
    with pytest.raises(EngineError, match=problem):
        export(loaded, library, both, tmp_path / "out", precision=precision)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match=r"saved in .*, not in fp16"):
        export(loaded, library, pairs, tmp_path / "out", precision="fp16")
    # As where a norm is another one.
    loaded.model.encoder.norm = nn.RMSNorm(WIDTH)
    with pytest.raises(
        EngineError, match=r"parts that are not converted \((AttributeError|AssertionError): "
    ):
        export(loaded, library, pairs, tmp_path / "out", precision=precision)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strategy", [None, Beam(5), Beam(3, 0.0), Beam(4, 1.5, "mean")])
def test_ctranslate2_keeps_the_limit_of_each_sentence(
    strategy: Beam | None, make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    loaded = make_loaded(seed=5)
    export(loaded, library_of("ctranslate2"), pairs, tmp_path / "out")
    exported = load_exported(tmp_path / "out")
    sentences = [
        Sentence(1, loaded.src_tokenizer.encode(text), limit=1 + index % 12)
        for index, text in enumerate(pairs[0][:40])
    ]
    ours, theirs = (
        translator.engine.search(sentences, Rules(strategy), lambda: None, lambda indices: None)
        for translator in (ModelTranslator(loaded, device=torch.device("cpu")), exported)
    )
    assert {each[0].finished for each in ours} == {True, False}
    for one, other in zip(ours, theirs, strict=True):
        assert (list(one[0].ids), one[0].finished) == (list(other[0].ids), other[0].finished)
        assert one[0].score == pytest.approx(other[0].score, abs=1e-3)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_direction_is_read_as_the_first_token_and_never_from_text_nor_written(
    kind: str,
    library: str,
    both_ways: Callable[[str], LoadedModel],
    pairs: Pairs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded, out = both_ways(kind), tmp_path / "out"
    # Its beams are compared here.
    check(loaded, library, pairs, out, NUM_QUICK)
    card = (out / "README.md").read_text()
    parts = "# tiny: en to de, de to en", "5 de < lines", "such as `<to:de>`", "sentences from en to de were"
    assert [part for part in parts if part not in card] == []
    texts = [*pairs[0][:9], f"<to:en> {pairs[0][9]}", f"{pairs[0][10]} <to:de>", "<to:de> <to:en>"]

    def example(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["example.py", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
        capsys.readouterr()
        runpy.run_path(str(out / "example.py"))
        return capsys.readouterr().out.splitlines()

    reserved, ours = loaded.src_tokenizer.reserved, ModelTranslator(loaded, device=torch.device("cpu"))
    theirs = load_exported(out) if library == "ctranslate2" else ours
    for to in ("de", "en"):
        beams, greedy = theirs.into(to).n_best(texts, strategy=Beam(4)), ours.into(to).n_best(texts)
        for [(segment, hypothesis)] in (best.parts for best, *_ in (*beams, *greedy)):
            first, *others = (token.id for token in segment.tokens)
            assert first == reserved[f"<to:{to}>"]
            assert not {*others, *hypothesis.ids} & {*reserved.values()}
        # In transformers, a call has the highest limit of all.
        for [best], line in zip(greedy, example("1", to), strict=True):
            assert line == best.text or (library == "transformers" and not best.parts[0][1].finished)
    assert example("1", "de") != example("1", "en")
    for arguments in (["1"], ["1", "fr"]):
        with pytest.raises(SystemExit, match=r"say into which language: example.py BEAM de\|en"):
            example(*arguments)


@pytest.mark.parametrize("ratio", [0.5, 1.7])
def test_the_example_has_the_limits_of_mt(
    ratio: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "example.py").write_text(library_of("ctranslate2").EXAMPLE)
    facts = {"max_length": 50, "target_ratio": ratio, "tgt": "de", "directions": [], "reserved": []}
    (tmp_path / "mt_export.json").write_text(json.dumps(facts))
    library = MagicMock()
    library.Tokenizer.from_file().encode.side_effect = lambda text, **_: SimpleNamespace(tokens=text.split())
    for name in ("ctranslate2", "tokenizers"):
        monkeypatch.setitem(sys.modules, name, library)
    monkeypatch.setattr(sys, "argv", ["example.py"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b c\n" + b"a " * 60)))
    runpy.run_path(str(tmp_path / "example.py"))
    calls = library.Translator().translate_batch.call_args_list
    assert [len(call.args[0][0]) for call in calls] == [3, 49]
    limits = [length_limit(length, 50, target_ratio=ratio) for length in (4, 50)]
    assert [call.kwargs["max_decoding_length"] for call in calls] == limits
