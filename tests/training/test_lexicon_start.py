"""A model that begins with what the aligner knows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mt.config.model import ModelConfig
from mt.data.batches.alignment import NONE
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.run_directory import RunDirectory
from mt.training import run as training_run
from mt.training.lexicon_start import begin_with_lexicon, vectors_of_neighbours
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from tests.fixture_types import AssertSame
from tests.training.steps import Training

# Source word 4 is aligned with 4 twice and with 5 once, 5 with 6 once; 6 is never aligned.
SRC, TGT = (EncodedSentences.of(rows) for rows in ([[4, 5], [6, 4], [4]], [[4, 6], [4, 7], [5]]))
PAIRS = EncodedPairs(SRC, TGT, src_positions=np.array([0, 1, 1, NONE, 0], dtype=np.int16))


def build(*, tgt_vocab_size: int = 9, **options: Any) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(d_model=256, num_heads=2, num_encoder_layers=1, num_decoder_layers=2, **options)
    src_vocab_size = tgt_vocab_size if options.get("share_embeddings") else tgt_vocab_size - 1
    return build_transformer(
        config, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, max_length=9
    )


def test_with_one_embedding_only_words_of_the_source_move() -> None:
    model, before = (build(share_embeddings=True) for _ in range(2))
    # The source has 4 three times, and the target twice; 5 is as frequent in both. No word has a neighbour.
    src, tgt = (EncodedSentences.of([[word] for word in words]) for words in ([4, 4, 4, 5], [4, 4, 5, 7]))
    begin_with_lexicon(model, EncodedPairs(src, tgt, src_positions=np.array([0, 0, 0, NONE], dtype=np.int16)))
    rows, drawn = (each.output.weight.detach() for each in (model, before))
    assert cosine(rows[4], 2 * drawn[4] + drawn[5]) > 0.9
    torch.testing.assert_close(rows[5:], drawn[5:], rtol=0, atol=0)


def cosine(one: Tensor, other: Tensor) -> float:
    return torch.cosine_similarity(one, other, dim=0).item()


@pytest.mark.parametrize("tie_output", [True, False])
def test_words_with_the_same_neighbours_are_similar(tie_output: bool) -> None:
    tgt = EncodedSentences.of([[4, 5, 6], [4, 7, 6], [8, 5, 4], [8, 7, 4], [6]])
    pairs = EncodedPairs(tgt, tgt, src_positions=np.full(13, NONE, dtype=np.int16))
    vectors = vectors_of_neighbours(tgt, 10, 256)
    assert cosine(vectors[5], vectors[7]) > 0.99
    assert max(cosine(vectors[5], vectors[other]) for other in (4, 6, 8)) < 0.5
    before, model = (build(tie_output=tie_output, tgt_vocab_size=10) for _ in range(2))
    begin_with_lexicon(model, pairs)
    for matrix in ("output.weight", "tgt_embedding.tokens.weight"):
        rows, drawn = (each.get_parameter(matrix).detach() for each in (model, before))
        # A tenth of the variance is what was drawn.
        assert 0.8 < cosine(rows[5], rows[7]) < 0.97
        assert 0.2 < cosine(rows[5], drawn[5]) < 0.45
        assert float(rows[5].norm()) == pytest.approx(float(drawn[5].norm()), rel=0.2)
        # EOS, and an entry that never occurs.
        torch.testing.assert_close(rows[[3, 9]], drawn[[3, 9]], rtol=0, atol=0)


def test_sentences_of_one_word_have_no_neighbours() -> None:
    assert not vectors_of_neighbours(EncodedSentences.of([[4], [5]]), 8, 4).any()


@pytest.mark.parametrize("tie_output", [True, False])
def test_a_source_word_points_to_its_translations(tie_output: bool) -> None:
    before, model = (build(tie_output=tie_output) for _ in range(2))
    begin_with_lexicon(model, PAIRS)
    src, out = model.src_embedding.tokens.weight.detach(), model.output.weight.detach()
    assert cosine(src[4], 2 * out[4] + out[5]) > 0.9
    assert cosine(src[5], out[6]) > 0.9
    drawn = before.src_embedding.tokens.weight.detach()
    torch.testing.assert_close(src[6:], drawn[6:], rtol=0, atol=0)
    # It is as long as it was, but for the angle between what is added.
    assert float(src[4].norm()) == pytest.approx(float(drawn[4].norm()), rel=0.2)
    assert cosine(src[5], drawn[5]) > 0.1


def test_cross_attention_passes_on_what_it_attends_to() -> None:
    model = build()
    begin_with_lexicon(model, PAIRS)
    for layer in model.decoder.layers:
        h = torch.randn(1, 256)
        passed_on = layer.cross_attention.output(layer.cross_attention.value(h))
        assert cosine(passed_on[0], h[0]) > 0.8
        assert cosine(layer.self_attention.value(h)[0], h[0]) < 0.5


def test_the_bias_of_the_output_knows_how_frequent_words_are() -> None:
    model = build(output_bias=True)
    begin_with_lexicon(model, PAIRS)
    # 5 words, and EOS, which is number 3, after each of 3 sentences; half an occurrence at least.
    expected = torch.tensor([0.5, 0.5, 0.5, 3.0, 2.0, 1.0, 1.0, 1.0, 0.5]) / 8
    torch.testing.assert_close(model.output.bias, expected.log())


def test_only_a_run_that_begins_does_so(
    train: Training,
    run: RunDirectory,
    tmp_path: Path,
    assert_same: AssertSame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = "training.guided_alignment=0.5", "training.lexicon_start=true", "model.output_bias=true"
    calls: list[Transformer] = []

    def begin(model: Transformer, pairs: EncodedPairs) -> None:
        calls.append(model)
        begin_with_lexicon(model, pairs)

    monkeypatch.setattr(training_run, "begin_with_lexicon", begin)
    train(*options)
    other = tmp_path / "other"
    train(*options, step=5, into=other)
    train(*options, into=other)
    assert len(calls) == 2
    assert_same(run, RunDirectory(other))
    # Weights that were trained are better.
    train(*options, f"init_from.run={run.path}", into=tmp_path / "child")
    assert len(calls) == 2
