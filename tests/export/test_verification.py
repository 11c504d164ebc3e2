"""An export is verified as it is on the disk; a near-tie is told from a difference."""

import errno
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mt.errors import ConfigError, ExportError
from mt.export.export import Exported, export_model
from mt.export.model_card import agreement_rows
from mt.export.target import ExportTarget
from mt.inference.engine.same_rules import Nudged
from mt.inference.engine.verification import Verifier
from mt.inference.engines import Rules, Sentence
from mt.inference.loaded_model import LoadedModel
from mt.inference.text_search import TextSearch
from mt.inference.torch_engine import TorchEngine
from mt.search.ensemble import Member
from mt.search.strategy import Beam
from mt.transformer.packed_transformer import PackedTransformer

MakeLoaded = Callable[..., LoadedModel]
Pairs = tuple[list[str], list[str]]


def _export(
    loaded: LoadedModel, target: ExportTarget, pairs: Pairs, folder: Path, **options: Any
) -> Exported:
    return export_model(
        loaded,
        folder,
        target,
        run_name="tiny",
        sources=pairs[0][:12],
        references=pairs[1][:12],
        **{"precision": "float32", **options},
    )


def _ctranslate2() -> ExportTarget:
    pytest.importorskip("ctranslate2")
    from mt.export.ctranslate2_target import CTRANSLATE2

    return CTRANSLATE2


def _transformers() -> ExportTarget:
    pytest.importorskip("transformers")
    from mt.export.transformers_target import TRANSFORMERS

    return TRANSFORMERS


def _damage(folder: Path, weight: torch.Tensor) -> None:
    """Make the first number of a row of a weight a large one, in whatever file has that row."""
    row = weight.detach().numpy().tobytes()
    for file in folder.iterdir():
        if file.is_file() and (content := file.read_bytes()).count(row) == 1:
            large = torch.tensor([1000.0]).numpy().tobytes()
            file.write_bytes(content.replace(row, large + row[len(large) :]))
            return
    raise AssertionError("the weight is in no file")


@contextmanager
def _files_of_at_most(num_bytes: int) -> Iterator[None]:
    """As on a full disk: what is written beyond this fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_appears_in_the_place_while_it_is_verified_is_not_replaced(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target, out = _ctranslate2(), tmp_path / "out"

    def load(path: Path) -> TextSearch:
        out.mkdir(exist_ok=True)
        (out / "letter.txt").write_text("keep")
        return target.load(path)

    with pytest.raises(ConfigError, match="is not an earlier export"):
        _export(make_loaded(), replace(target, load=load), pairs, out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("get_target", [_ctranslate2, _transformers])
def test_a_full_disk_is_an_error_of_the_system_and_leaves_nothing(
    get_target: Callable[[], ExportTarget], make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target, loaded = get_target(), make_loaded()
    # The model alone is larger.
    with _files_of_at_most(50_000), pytest.raises(OSError, match="too large") as caught:
        _export(loaded, target, pairs, tmp_path / "out")
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_of_transformers_that_cannot_be_written_is_an_error_of_the_system(
    make_loaded: MakeLoaded, tmp_path: Path
) -> None:
    target, loaded = _transformers(), make_loaded()
    (tmp_path / "source_tokenizer" / "tokenizer.json").mkdir(parents=True)
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(IsADirectoryError):
        target.write(
            loaded.model,
            loaded.config.model,
            loaded.src_tokenizer,
            loaded.tgt_tokenizer,
            tmp_path,
            max_length=loaded.config.data.max_length,
            precision="float32",
        )


@pytest.mark.parametrize("get_target", [_ctranslate2, _transformers])
def test_a_damaged_weight_fails_and_leaves_nothing(
    get_target: Callable[[], ExportTarget], make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target, loaded = get_target(), make_loaded()
    # Neither concatenated with others nor permuted.
    weight = loaded.model.decoder.layers[0].feed_forward.inner.bias  # type: ignore[union-attr]

    def write(*arguments: Any, **options: Any) -> None:
        target.write(*arguments, **options)
        _damage(arguments[4], weight)  # type: ignore[arg-type]

    with pytest.raises(ExportError, match=r"\d+ sentences of 12 differ with .*log-probabilities.*sentence"):
        _export(loaded, replace(target, write=write), pairs, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    _export(loaded, target, pairs, tmp_path / "out")


def test_a_failed_export_keeps_the_earlier_one(make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path) -> None:
    target, loaded = _ctranslate2(), make_loaded()
    _export(loaded, target, pairs, tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        _export(loaded, replace(target, write=fail), pairs, tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_export_has_left_is_removed_by_the_next_one_to_the_same_place(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target, loaded = _ctranslate2(), make_loaded()
    for name in (".out.partial-0000beef", "..out.aside.partial-0000beef", ".other.partial-0000beef"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_bytes(b"half")
    _export(loaded, target, pairs, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".other.partial-0000beef"}


def test_an_export_that_was_killed_while_it_replaced_an_earlier_one_is_finished_or_undone(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target, loaded = _ctranslate2(), make_loaded()
    out, aside = tmp_path / "out", tmp_path / ".out.aside"
    _export(loaded, target, pairs, out)
    shutil.copytree(out, aside)
    _export(loaded, target, pairs, out)
    assert list(tmp_path.iterdir()) == [out]
    out.rename(aside)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        _export(loaded, replace(target, write=fail), pairs, out)
    assert list(tmp_path.iterdir()) == [out]


def test_a_model_that_loses_bleu_is_refused_in_any_precision(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target, loaded = _ctranslate2(), make_loaded()
    own = _exported_by(loaded, _packed(loaded))
    # What it writes itself is the reference, so that its BLEU is 100.
    references = [text or "." for text in own.translate(pairs[0][:12])]

    def write(*arguments: Any, **options: Any) -> None:
        other = make_loaded(seed=2)
        target.write(other.model, *arguments[1:], **options)

    with pytest.raises(ExportError, match=r"BLEU falls from \d+\.\d+ to \d"):
        _export(
            loaded, replace(target, write=write), (pairs[0], references), tmp_path / "out", precision="int8"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_precision_that_the_program_does_not_have_is_refused(
    make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="transformers cannot be saved in int8, only in float32 or bf16"):
        _export(make_loaded(), _transformers(), pairs, tmp_path / "out", precision="int8")


def _packed(loaded: LoadedModel) -> PackedTransformer:
    return PackedTransformer(loaded.model, "float32")


def _exported_by(loaded: LoadedModel, model: Member) -> TextSearch:
    """Stands for an exported folder whose program computes with ``model``."""
    return TextSearch(
        TorchEngine(model, torch.device("cpu"), batch_sentences=8),
        loaded.src_tokenizer,
        loaded.tgt_tokenizer,
        max_length=loaded.config.data.max_length,
        target_ratio=loaded.target_ratio,
    )


@pytest.mark.parametrize(
    ("strategy", "num_twins"), [(None, 30), (Beam(5, 1.0, "mean"), 5)], ids=["greedy", "beam"]
)
def test_a_difference_that_rounding_explains_is_named_a_near_tie(
    strategy: Beam | None, num_twins: int, make_loaded: MakeLoaded, pairs: Pairs
) -> None:
    loaded = make_loaded("model.tie_output=false")
    with torch.no_grad():
        # Pairs of words that are equally likely, but for a millionth.
        weight = loaded.model.output.weight[4 : 4 + 2 * num_twins]
        weight[1::2] = weight[::2] * (1 - 1e-6)
    verifier = Verifier(loaded, pairs[0][:20], pairs[1][:20])
    rounded = _exported_by(loaded, Nudged(_packed(loaded), 1e-5, seed=99))
    found = verifier.compare(rounded, "some search", strategy, exact=True)
    assert 0 < len(found.mismatches) == 20 - found.num_same
    for each in found.mismatches:
        assert each.is_near_tie
        assert each.ours != each.theirs


def test_a_line_in_several_segments_is_one_sentence(make_loaded: MakeLoaded, pairs: Pairs) -> None:
    loaded = make_loaded("model.tie_output=false")
    with torch.no_grad():
        weight = loaded.model.output.weight[4:64]
        weight[1::2] = weight[::2] * (1 - 1e-6)
    # Each line is longer than the model can read.
    sources, references = ([" ".join(side[at : at + 4]) for at in range(0, 24, 4)] for side in pairs)
    verifier = Verifier(loaded, sources, references)
    rounded = _exported_by(loaded, Nudged(_packed(loaded), 1e-5, seed=99))
    found = verifier.compare(rounded, "greedy search", None, exact=True)
    lines = {each.line for each in found.mismatches}
    assert 0 < len(lines) < len(found.mismatches)
    assert (found.num_sentences, found.num_same) == (6, 6 - len(lines))
    _, row = agreement_rows([found])
    assert row[1:4] == ["6", str(found.num_same), str(len(lines))]
    # Nobody looks for near-ties if the precision differs.
    _, row = agreement_rows([verifier.compare(rounded, "greedy search", None, exact=False)])
    assert row[3] == "-"


@pytest.mark.parametrize("strategy", [None, Beam(5, 1.0, "mean")], ids=["greedy", "beam"])
def test_a_larger_difference_is_none(strategy: Beam | None, make_loaded: MakeLoaded, pairs: Pairs) -> None:
    loaded = make_loaded()
    verifier = Verifier(loaded, pairs[0][:12], pairs[1][:12])
    with pytest.raises(ExportError, match="differ with some search"):
        verifier.compare(
            _exported_by(loaded, Nudged(_packed(loaded), 3.0, seed=99)), "some search", strategy, exact=True
        )


@pytest.mark.parametrize("strategy", [None, Beam(5), Beam(3, 0.0), Beam(4, 1.5, "mean")])
def test_ctranslate2_keeps_the_limit_of_each_sentence(
    strategy: Beam | None, make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target = _ctranslate2()
    loaded = make_loaded(seed=5)
    _export(loaded, target, pairs, tmp_path / "out")
    sentences = [
        Sentence(1, 1, loaded.src_tokenizer.encode(text), limit=1 + place % 12)
        for place, text in enumerate(pairs[0][:40])
    ]
    expected, found = (
        search.engine.search(sentences, Rules(strategy))
        for search in (_exported_by(loaded, _packed(loaded)), target.load(tmp_path / "out"))
    )
    assert {each[0].finished for each in expected} == {True, False}
    for one, other in zip(expected, found, strict=True):
        assert (list(one[0].ids), one[0].finished) == (list(other[0].ids), other[0].finished)
        assert one[0].score == pytest.approx(other[0].score, abs=1e-3)


@pytest.mark.parametrize("strategy", [Beam(8, 2.0), Beam(12, 2.0)])
def test_the_n_best_list_of_ctranslate2_does_not_depend_on_the_batch(
    strategy: Beam, make_loaded: MakeLoaded, pairs: Pairs, tmp_path: Path
) -> None:
    target = _ctranslate2()
    _export(make_loaded(seed=2), target, pairs, tmp_path / "out")
    exported = target.load(tmp_path / "out")
    # Of one word up to a whole sentence.
    words = [text.split()[: 1 + place % 12] for place, text in enumerate(pairs[0][:48])]
    sources = [" ".join(each) for each in words]
    together = exported.n_best(sources, num_best=strategy.size, strategy=strategy)
    for source, expected in zip(sources, together, strict=True):
        [alone] = exported.n_best([source], num_best=strategy.size, strategy=strategy)
        assert [each.text for each in alone] == [each.text for each in expected]
