"""The share of a GPU's peak, beside the operations of known models."""

import pytest
import torch

from mt import processes
from mt.config.model import ModelConfig
from mt.training.loss import Objective
from mt.training.peak import num_multiplied, peak_rate, share_of_peak
from mt.transformer.build import build_transformer
from mt.transformer.weights import without_memory

BASE = ModelConfig(d_model=512, num_heads=8, num_encoder_layers=6, num_decoder_layers=6, d_ff=2048)
BIG = ModelConfig(d_model=1024, num_heads=16, num_encoder_layers=6, num_decoder_layers=6, d_ff=4096)


def objective(model: ModelConfig, words: int, *, r_drop: float = 0.0) -> Objective:
    with without_memory():
        built = build_transformer(model, src_vocab_size=words, tgt_vocab_size=words, max_length=16)
    return Objective(built, r_drop=r_drop)


@pytest.mark.parametrize(
    ("model", "words", "millions"), [(BASE, 8_000, 289), (BASE, 37_000, 378), (BIG, 37_000, 1284)]
)
def test_operations_for_a_target_token_of_the_papers_models(
    model: ModelConfig, words: int, millions: int
) -> None:
    for tied in (True, False):
        sizes = model.model_copy(update={"tie_output": tied})
        assert round(6e-6 * num_multiplied(objective(sizes, words))) == millions


def test_the_peak_of_a_gpu_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, base = torch.device("cuda"), objective(BASE, 8_000)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    assert peak_rate(base, cuda) == pytest.approx(3.42e6, rel=0.01)
    # Two forward and backward passes for each token.
    assert peak_rate(objective(BASE, 8_000, r_drop=3.0), cuda) == pytest.approx(1.71e6, rel=0.01)
    assert share_of_peak(342_000, peak_rate(base, cuda)) == ", 10 % of the GPU's peak"
    # Of all processes, each of which has a GPU.
    monkeypatch.setattr(processes, "SIZE", 4)
    assert peak_rate(base, cuda) == pytest.approx(4 * 3.42e6, rel=0.01)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another GPU")
    assert share_of_peak(342_000, peak_rate(base, cuda)) == ""
    assert peak_rate(base, torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("names", "tera"),
    [
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3, NVIDIA GH200 480GB", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("Tesla V100-SXM2-16GB", 125),
        ("NVIDIA L4", 121),
        ("NVIDIA L40, NVIDIA T400 4GB", None),
    ],
)
def test_a_gpu_is_not_taken_for_one_whose_name_is_a_part_of_its_own(
    names: str, tera: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = objective(BASE, 10)
    peak = None if tera is None else pytest.approx(tera * 1e12 / (6 * num_multiplied(small)))
    for name in names.split(", "):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_rate(small, torch.device("cuda")) == peak
