"""The model that `mt check` tries out: its parameters by hand, its batches, its speed, its memory."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch

from mt.config.config import Config
from mt.config.data import TokenizerConfig
from mt.data.batches.dataset import EncodedPairs, encode_pairs
from mt.data.batches.sampler import Indices
from mt.data.batches.stream import BatchStream
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.device import Precision, forget_peak
from mt.errors import TrainingError
from mt.inference.loaded_model import build_model
from mt.preflight import trial as trial_module
from mt.preflight.trial import (
    ModelSize,
    Speed,
    Trial,
    largest_batches,
    measure_size,
    refuse_too_large,
)
from mt.run_directory import RunDirectory
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, length_limit
from mt.search.request import SearchRequest
from mt.training.run import run_training
from mt.transformer.packed_transformer import PackedTransformer

MakeConfig = Callable[..., Config]
CPU = torch.device("cpu")


@pytest.fixture
def prepared(make_config: MakeConfig) -> tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]]:
    config = make_config()
    corpus = load_corpus(config.data)
    tokenizers = make_tokenizers(corpus.train, config)
    return config, encode_pairs(corpus.train, *tokenizers, max_length=16)[0], tokenizers


def test_it_computes_as_a_run_does(
    prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("fix_num_threads", "keep_freed_memory"):
        monkeypatch.setattr(trial_module, name, lambda name=name: calls.append(name))
    config, _, tokenizers = prepared
    Trial(config, build_model(config, *tokenizers), Precision("float32", CPU))
    assert calls == ["fix_num_threads", "keep_freed_memory"]


@pytest.fixture
def trial(prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]]) -> Trial:
    config, _, tokenizers = prepared
    return Trial(config, build_model(config, *tokenizers), Precision("float32", CPU))


def indices(*numbers: int) -> Indices:
    return np.array(numbers, dtype=np.int32)


def tokenizer_of(num_words: int) -> Tokenizer:
    text = " ".join(f"w{number}" for number in range(num_words))
    return train_tokenizer([text], TokenizerConfig(min_frequency=1))


def test_parameters_by_hand(make_config: MakeConfig) -> None:
    src, tgt = tokenizer_of(6), tokenizer_of(16)
    d, d_ff = 16, 32
    attention = 4 * (d * d + d)
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    norm = 2 * d
    # One layer each; norm_first, which adds a norm at the end of each stack; four special tokens.
    expected = {
        "embeddings": 10 * d + 20 * d,
        "encoder": attention + feed_forward + 2 * norm + norm,
        "decoder": 2 * attention + feed_forward + 3 * norm + norm,
        "output": 0,
    }
    assert measure_size(make_config(), src, tgt).parts == expected
    untied = measure_size(make_config("model.tie_output=false"), src, tgt).parts
    assert untied == expected | {"output": 20 * d}
    shared = make_config("model.share_embeddings=true", "tokenizer.shared=true")
    assert measure_size(shared, tgt, tgt).parts == expected | {"embeddings": 20 * d}


def test_the_batches_to_be_afraid_of() -> None:
    src, tgt = (["w " * (length - 1) for length in lengths] for lengths in ([3, 4, 9, 2], [3, 3, 2, 5]))
    words = train_tokenizer(["w"], TokenizerConfig(min_frequency=1))
    text = datasets.Dataset.from_dict({"src": src, "tgt": tgt})
    pairs, _ = encode_pairs(text, words, words, max_length=None)
    batches = [indices(2), indices(0, 1), indices(3)]
    # 2 x (4 + 3) positions are more than 1 x (9 + 2), and 9 is the longest sentence.
    assert [batch.tolist() for batch in largest_batches(pairs, batches)] == [[0, 1], [2]]
    assert [batch.tolist() for batch in largest_batches(pairs, batches[:1])] == [[2]]
    # As long as the longest of all, so that a second batch would tell nothing more.
    assert [batch.tolist() for batch in largest_batches(pairs, [indices(3, 2), indices(2)])] == [[3, 2]]


def test_the_largest_step_is_a_real_one(
    trial: Trial, prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]]
) -> None:
    config, pairs, (_, tgt_tokenizer) = prepared
    batch = indices(*range(10))
    stream = BatchStream(pairs, batch_tokens=100, num_micro_batches=1, seed=config.training.seed)
    before = [parameter.clone() for parameter in trial.model.parameters()]
    step = trial.take_largest_step(stream, [batch])
    assert step.shapes == [(10, int(pairs.src.lengths[:10].max()), int(pairs.tgt.lengths[:10].max()))]
    assert step.result.updated
    assert step.result.num_target_tokens == pairs.tgt.lengths[:10].sum()
    # Nothing has been learnt yet: all words are about as likely.
    assert step.result.loss == pytest.approx(np.log(tgt_tokenizer.size), rel=0.3)
    assert any(not torch.equal(a, b) for a, b in zip(before, trial.model.parameters(), strict=True))


def test_speed_counts_the_tokens_of_the_steps_after_the_first_ones(
    trial: Trial,
    prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, pairs, _ = prepared
    stream = BatchStream(pairs, batch_tokens=100, num_micro_batches=2, seed=config.training.seed)
    epoch, batch, tokens = 0, 0, []
    for _ in range(6):
        batches, epoch, batch = stream.take(epoch, batch)
        tokens.append(sum(int((batch.labels != 0).sum()) for batch in batches))
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: 2.0 * next(ticks))
    monkeypatch.setattr(Speed, "is_steady", True)
    speed = trial.measure_speed(stream, max_steps=4, max_seconds=1000)
    assert speed.step_target_tokens == tokens[2:]
    # The clock, two seconds on at each look, is looked at between steps.
    assert list(speed.step_seconds) == [2.0, 2.0, 2.0, 2.0]
    assert speed.tokens_per_second == sum(tokens[2:]) / 8
    # However slow they are, one is not counted.
    assert trial.measure_speed(stream, max_steps=1, max_seconds=1).step_target_tokens == tokens[1:2]
    assert trial.measure_speed(stream, max_steps=3, max_seconds=1).num_steps == 1
    # Where steps vary it takes longer, but not for ever.
    monkeypatch.setattr(Speed, "is_steady", False)
    assert trial.measure_speed(stream, max_steps=3, max_seconds=1000).num_steps == 9
    assert trial.measure_speed(stream, max_steps=1000, max_seconds=6).num_steps == 9


def test_how_much_speed_varies_by_hand() -> None:
    steady = Speed([10] * 8, [1, 2] * 4, None)
    assert steady.range == (20 / 3, 20 / 3)
    assert steady.is_steady
    assert steady.processor_share == 1
    # The third quarter is half as fast as the others.
    varying = Speed([10] * 8, [1, 1, 1, 1, 2, 2, 1, 1], 5.0)
    assert varying.range == (5, 10)
    assert not varying.is_steady
    assert varying.processor_share == 0.5
    # Of three steps nobody can tell.
    assert not Speed([10] * 3, [1] * 3, None).is_steady
    assert Speed([10], [2], None).range == (5, 5)


def test_search_and_validation_are_tried(
    trial: Trial, prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]]
) -> None:
    config, pairs, tokenizers = prepared
    length, written, seconds = trial.write_longest(pairs, indices(*range(len(pairs))))
    assert length == pairs.src.lengths.max()
    assert len(written.ids) <= length_limit(length, config.data.max_length)
    assert seconds > 0
    validation = load_corpus(config.data).validation
    assert trial.measure_validation(validation, tokenizers) > 0


def test_a_validation_is_expected_to_take_as_long_for_each_token_as_its_middle(
    trial: Trial,
    prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Eight of twelve sentences are timed, of 3 tokens with EOS; the two longest have 9.
    lengths = [2] * 10 + [8, 8]
    texts = [" ".join(["milk"] * length) for length in lengths]
    monkeypatch.setattr(trial_module, "time", SimpleNamespace(perf_counter=iter((10.0, 10.5, 12.5)).__next__))
    seconds = trial.measure_validation(datasets.Dataset.from_dict({"src": texts, "tgt": texts}), prepared[2])
    # Packing the weights takes half a second, whatever the number of sentences.
    assert seconds == pytest.approx(0.5 + 2 * (10 * 3 + 2 * 9) / (8 * 3))


def test_a_full_memory_halves_the_search(
    trial: Trial,
    prepared: tuple[Config, EncodedPairs, tuple[Tokenizer, Tokenizer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, _, tokenizers = prepared
    widths = []

    def cramped(model: PackedTransformer, request: SearchRequest) -> list[Hypothesis]:
        widths.append(len(request.limits))
        if len(request.limits) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return greedy_search(model, request)

    monkeypatch.setattr(trial_module, "greedy_search", cramped)
    trial.measure_validation(load_corpus(config.data).validation, tokenizers)
    assert widths == [8, 4, 2, 2, 4, 2, 2]


@pytest.mark.parametrize(
    "options", [(), ("training.ema_decay=0.9",), ("training.ema_decay=0.9", "training.muon=true")]
)
def test_what_is_saved_takes_as_much_as_a_real_checkpoint(
    options: tuple[str, ...], make_config: MakeConfig, tmp_path: Path
) -> None:
    # Large enough for one moment of the matrices to be more than what is small.
    config = make_config("model.d_model=64", "training.max_steps=1", *options)
    run_training(config, run := RunDirectory(tmp_path / "run"))
    [checkpoint] = run.checkpoints_dir.glob("step_*")
    num_bytes = sum(file.stat().st_size for file in checkpoint.iterdir())
    size = measure_size(config, *make_tokenizers(load_corpus(config.data).train, config))
    # Names, shapes and record are besides: little, however large the model is.
    assert 0 < num_bytes - size.saved_bytes < 100_000


def test_a_model_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ModelSize({"encoder": 600, "decoder": 400}, num_moments=2_000, num_averages=0)
    averaged = replace(plain, num_averages=1_000)
    refuse_too_large(averaged, CPU)
    # Weights, gradients and two moments, of four bytes each, fit, and an average of the weights does not.
    monkeypatch.setattr(trial_module, "free_memory", lambda device: 19_999)
    refuse_too_large(plain, CPU)
    what = r"1,000 parameters with their gradients, moments and moving average .* Lower model\.d_model"
    with pytest.raises(TrainingError, match=what):
        refuse_too_large(averaged, CPU)
    monkeypatch.setattr(trial_module, "free_memory", lambda device: None)
    refuse_too_large(replace(averaged, num_moments=10**15), CPU)


@pytest.mark.skipif(not forget_peak(CPU), reason="for Linux, which counts the peak of a process")
def test_a_peak_of_memory_is_seen_and_forgotten() -> None:
    # In a process of its own: this one may keep what other tests have freed.
    code = """
import torch
from mt.device import forget_peak, free_memory, peak_memory, taken_memory
CPU = torch.device("cpu")
before = taken_memory(CPU)
torch.ones(25_000_000)
assert 90e6 < peak_memory(CPU) - before < 150e6
assert forget_peak(CPU)
assert abs(peak_memory(CPU) - taken_memory(CPU)) < 30e6
assert free_memory(CPU) > 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
