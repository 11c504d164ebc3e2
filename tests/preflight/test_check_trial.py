"""The model that `mt check` and `mt init` try: its parameters by hand, its batches, its time, its memory."""

from dataclasses import replace
from itertools import accumulate, cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import mt.device
import mt.preflight.trial
from mt.config.config import Config
from mt.config.data import TokenizerConfig
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import RunError
from mt.inference.loaded_model import build_model
from mt.preflight.text import ExaminedCorpus, encode, examine
from mt.preflight.trial import ModelSize, Sample, Trial
from mt.run_directory import RunDirectory
from mt.training.budget import VALIDATION_PASSES
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

CPU = torch.device("cpu")


@pytest.fixture
def text(make_config: MakeConfig) -> ExaminedCorpus:
    config = make_config()
    return examine(load_corpus(config.data), config)


def tokenizer_of(num_words: int) -> Tokenizer:
    words = " ".join(f"w{number}" for number in range(num_words))
    return train_tokenizer([words], TokenizerConfig(min_frequency=1))


def size_of(config: Config, src: Tokenizer, tgt: Tokenizer) -> ModelSize:
    return ModelSize.of(build_model(config, src, tgt), config)


def test_parameters_by_hand(make_config: MakeConfig) -> None:
    src, tgt = tokenizer_of(6), tokenizer_of(16)
    d, d_ff = 16, 32
    attention = 4 * (d * d + d)
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    norm = 2 * d
    # One layer each; norm_first, which adds a norm at the end of each stack; four special tokens.
    expected = {
        "src_embedding": 10 * d,
        "tgt_embedding": 20 * d,
        "encoder": attention + feed_forward + 2 * norm + norm,
        "decoder": 2 * attention + feed_forward + 3 * norm + norm,
    }
    assert size_of(make_config(), src, tgt).parts == expected
    untied = size_of(make_config("model.tie_output=false"), src, tgt).parts
    assert untied == expected | {"output": 20 * d}
    shared = make_config("model.share_embeddings=true", "tokenizer.shared=true")
    assert sum(size_of(shared, tgt, tgt).parts.values()) == sum(expected.values()) - 10 * d


def test_the_pace_of_a_part_is_scaled_to_the_whole(make_config: MakeConfig, text: ExaminedCorpus) -> None:
    config = make_config()
    part = replace(text, scale=2.0, validation_scale=3.0)
    trials = [Trial(Sample(config, examined, encode(config, text)[0], 5.0)) for examined in (text, part)]
    whole, scaled = (trial.pace((1e-3, 1e-4)) for trial in trials)
    assert scaled.steps_per_epoch == 2 * whole.steps_per_epoch
    assert scaled.target_tokens_per_epoch == 2 * whole.target_tokens_per_epoch
    frozen = make_config("training.freeze=encoder.*")
    size = Trial(Sample(frozen, text, encode(frozen, text)[0], 5.0)).size
    assert size.num_bytes["moments"] == 8 * (size.num_parameters - size.parts["encoder"])
    tokens_per_step = whole.target_tokens_per_epoch / whole.steps_per_epoch
    assert whole.step_seconds == pytest.approx(1e-3 * tokens_per_step, rel=0.5)
    assert scaled.validation_seconds == pytest.approx(3 * whole.validation_seconds)
    # Each target with EOS, in a forward pass and in a search.
    validated = sum(len(text.tokenizers[1].encode(line)) + 1 for line in text.evaluation["validation"]["tgt"])
    assert whole.validation_seconds == pytest.approx(VALIDATION_PASSES * validated * 1e-4)
    # At 300 MB a second.
    assert whole.checkpoint_seconds == pytest.approx(trials[0].size.saved_bytes / 300e6)
    assert whole.num_parameters == trials[0].size.num_parameters
    # Converting the best checkpoint comes last.
    assert whole.start_seconds == scaled.start_seconds == pytest.approx(5.0 + 3.5 * validated * 1e-4)


def test_a_forward_pass_is_timed_by_the_token_where_nothing_else_ran(
    make_config: MakeConfig, text: ExaminedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(Sample(make_config(), text, encode(make_config(), text)[0], 5.0))
    # Of three passes in a row, each takes another of these times.
    ticks = accumulate(cycle([20, 3, 1]))
    monkeypatch.setattr(mt.preflight.trial, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    num_tokens = sum(batch.num_target_tokens for batch in trial.batches.take((0, 0)).micro_batches)
    assert trial.time_steps()[1] == 1 / num_tokens


@pytest.mark.parametrize(
    "options", [(), ("training.ema_decay=0.9",), ("training.ema_decay=0.9", "training.muon=true")]
)
def test_the_size_is_that_of_a_real_checkpoint(
    options: tuple[str, ...], make_config: MakeConfig, tmp_path: Path
) -> None:
    # Large enough for one moment of the matrices to be more than what is small.
    config = make_config("model.d_model=64", "training.max_steps=1", *options)
    run_training(config, run := RunDirectory(tmp_path / "run"))
    [checkpoint] = run.checkpoints_dir.glob("step_*")
    num_bytes = sum(file.stat().st_size for file in checkpoint.iterdir())
    size = size_of(config, *make_tokenizers(load_corpus(config.data).train, config))
    # Names, shapes and record are besides: little, however large the model is.
    assert 0 < num_bytes - size.saved_bytes < 100_000


def test_a_model_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"weights": 4_000, "gradients": 4_000, "moments": 8_000}
    plain = ModelSize({"encoder": 600, "decoder": 400}, numbers)
    averaged = replace(plain, num_bytes=numbers | {"average": 4_000})
    averaged.check_fits(CPU)
    # Weights, gradients and two moments, of four bytes each, fit, and an average of the weights does not.
    monkeypatch.setattr(mt.preflight.trial, "usable_memory", lambda device: 19_999)
    plain.check_fits(CPU)
    monkeypatch.setattr(mt.preflight.trial, "usable_memory", lambda device: 20_000)
    averaged.check_fits(CPU)
    monkeypatch.setattr(mt.preflight.trial, "usable_memory", lambda device: 15_999)
    with pytest.raises(RunError, match=r"with their gradients and moments take 16\.0 kB, but only "):
        replace(plain, num_bytes=numbers | {"average": 0}).check_fits(CPU)
    what = r"1,000 parameters with their gradients and moments and average .* Lower model\.d_model"
    with pytest.raises(RunError, match=what):
        averaged.check_fits(CPU)
