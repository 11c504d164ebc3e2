"""The precision of a translator is fixed when it is loaded, and rounding changes little."""

from pathlib import Path

import pytest
import torch

from mt.device import SearchPrecision, usable_precisions
from mt.errors import LinesError
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Sampling, Strategy

CPU = torch.device("cpu")
NEEDS_BF16 = pytest.mark.skipif(
    "bf16" not in usable_precisions(CPU), reason="needs a CPU that is fast at bf16"
)
PRECISIONS = ["float32", pytest.param("bf16", marks=NEEDS_BF16)]


@pytest.fixture
def sources(tiny_corpus: Path) -> list[str]:
    lines = (tiny_corpus / "train.en").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line][:64]


@pytest.mark.parametrize("strategy", [None, Beam(3)], ids=["greedy", "beam"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sentence_alone_is_translated_as_in_a_batch_of_64(
    precision: SearchPrecision, strategy: Strategy, trained: RunDirectory, sources: list[str]
) -> None:
    text = trained.config_file.read_text()
    assert "batch_sentences: 8" in text
    trained.config_file.write_text(text.replace("batch_sentences: 8", "batch_sentences: 64"))
    translator = ModelTranslator.from_run(trained, device=CPU, precision=precision)
    assert translator.engine.precision == precision
    together = [best for best, *_ in translator.n_best(sources, strategy=strategy)]
    assert len(sources) == 64
    for source, expected in zip(sources, together, strict=True):
        [[alone, *_]] = translator.n_best([source], strategy=strategy)
        assert alone.text == expected.text
        # Rounding must not make more of a difference than float32 does.
        assert alone.log_prob == pytest.approx(expected.log_prob, abs=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_scores_are_near_those_of_float32(
    precision: SearchPrecision, trained: RunDirectory, sources: list[str]
) -> None:
    exact = ModelTranslator.from_run(trained, device=CPU)
    rounded = ModelTranslator.from_run(trained, device=CPU, precision=precision)
    pairs = list(zip(sources, exact.translate(sources), strict=True))
    expected = [log_prob for pair in exact.score(pairs) for log_prob in pair.log_probs]
    found = [log_prob for pair in rounded.score(pairs) for log_prob in pair.log_probs]
    assert found == pytest.approx(expected, abs=1e-5 if precision == "float32" else 0.3)
    assert (found == expected) == (precision == "float32")


def in_fp16_on_the_cpu(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> ModelTranslator:
    """A translator in fp16, which is refused on a CPU because it is slow there."""
    with monkeypatch.context() as patch:
        patch.setattr("mt.inference.model_translator.choose_precision", lambda name, device: "fp16")
        return ModelTranslator(loaded, device=CPU, precision="fp16")


@pytest.mark.parametrize("strategy", [None, Beam(3), Sampling(seed=3)], ids=["greedy", "beam", "sampling"])
@torch.no_grad()
def test_a_sentence_that_overflows_in_fp16_is_an_error_of_its_line(
    strategy: Strategy, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(trained, "best")
    [milk] = loaded.src_tokenizer.encode("milk")
    loaded.model.src_embedding.tokens.weight[milk].mul_(1e6)
    lines = ["Anna sees the car.", "the dog sees milk.", "a child finds a house.", "milk"]
    assert all(ModelTranslator(loaded, device=CPU).translate(lines, strategy=strategy))
    translator = in_fp16_on_the_cpu(loaded, monkeypatch)
    # A copy is rounded, and not the model of whoever loaded it.
    assert loaded.model.output.weight.dtype == torch.float32
    for find in (translator.translate, translator.n_best):
        with pytest.raises(LinesError, match=r"line 8 has a sentence .* logits in fp16 are NaN") as refused:
            find(lines, strategy=strategy, first_line=7)
        assert set(refused.value.reasons) == {8, 10}
        assert "--precision float32" in str(refused.value)
    assert all(translator.translate([lines[0], "", lines[2]], strategy=strategy)[::2])
