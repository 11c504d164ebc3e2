"""The computed figures of docs/scaling.md follow from its formulas, the recipes and the model itself."""

import math
import re
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.config.load import load_config
from mt.transformer.build import build_transformer, without_memory

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
NAMES = ("base", "big")

# Published: see the page.
ONE_A100, EIGHT_A100 = 82_059, 551_599
NVIDIA_HOURS = 2.64
PEAK_OF_A100 = 312e12
LINKS = {"NVLink": 300e9, "InfiniBand": 25e9, "Ethernet": 1.25e9}
# Assumed.
PAIRS, TOKENS_A_PAIR, EPOCHS = 100e6, 30, 3


def cells(name: str) -> list[str]:
    """The cells behind the first of the one row of the page that begins with ``name``."""
    [row] = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def recipe(name: str) -> Config:
    return load_config(ROOT / "configs" / f"wmt14-en-de-{name}.yaml")


def num_parameters(name: str) -> int:
    config = recipe(name)
    size = config.tokenizer.max_size
    with without_memory():
        model = build_transformer(
            config.model, src_vocab_size=size, tgt_vocab_size=size, max_length=config.data.max_length
        )
    return sum(parameter.numel() for parameter in model.parameters())


def target_tokens(name: str) -> float:
    training = recipe(name).training
    assert training.max_steps is not None
    return training.max_steps * training.batch_tokens * training.num_micro_batches


def activation_bytes(name: str) -> float:
    """Of one source and one target token, after Korthikanti et al. 2022 with fused attention."""
    model = recipe(name).model
    assert model.d_ff == 4 * model.d_model
    return (34 * model.num_encoder_layers + (34 + 13) * model.num_decoder_layers) * model.d_model


def flops(name: str) -> float:
    """Of one source and one target token; the embedding is the output projection too."""
    return 6 * num_parameters(name)


def speed(name: str, measured: float) -> float:
    """Target tokens a second, if the model uses the same share of the peak as big."""
    return measured * flops("big") / flops(name)


def all_reduce_seconds(name: str, num_gpus: int, link: float) -> float:
    return 2 * (num_gpus - 1) / num_gpus * 4 * num_parameters(name) / link


def test_the_anchor_agrees_with_itself() -> None:
    assert cells("one A100 40 GB") == [f"{ONE_A100:,} target tokens a second"]
    assert cells("eight A100 40 GB")[0].startswith(f"{EIGHT_A100:,} target tokens a second, 6.72 times")
    assert cells("27.76 sacreBLEU on eight A100") == [f"after {NVIDIA_HOURS} hours"]
    assert f"{EIGHT_A100 / ONE_A100:.2f}" == "6.72"
    assert cells("target tokens until 27.76 BLEU") == [
        f"{NVIDIA_HOURS * 3600 * EIGHT_A100 / 1e9:.2f} billion"
    ]
    assert cells("share of the peak of one A100") == [f"{flops('big') * ONE_A100 / PEAK_OF_A100:.0%}"]


def test_memory() -> None:
    counts = {name: num_parameters(name) for name in NAMES}
    assert cells("parameters") == [f"{counts[name]:,}" for name in NAMES]
    assert cells("weights, gradients and Adam's moments") == [f"{16 * counts[n] / 1e9:.2f} GB" for n in NAMES]
    assert cells("bf16 copies of the weights") == [f"{2 * counts[n] / 1e9:.2f} GB" for n in NAMES]
    assert cells("gradient buckets of several processes") == [f"{4 * counts[n] / 1e9:.2f} GB" for n in NAMES]
    per_thousand = [f"{1000 * activation_bytes(n) / 1e6:.0f} MB" for n in NAMES]
    assert cells("activations of 1,000 source and 1,000 target tokens") == per_thousand
    assert cells("all of these with the recipe's micro-batch") == [
        f"{(22 * counts[n] + recipe(n).training.batch_tokens * activation_bytes(n)) / 1e9:.1f} GB"
        for n in NAMES
    ]


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_hours(name: str) -> None:
    tokens = target_tokens(name)
    hours = [tokens / speed(name, measured) / 3600 for measured in (ONE_A100, EIGHT_A100, 8 * EIGHT_A100)]
    steps = recipe(name).training.max_steps
    assert cells(f"WMT14 {name}") == [
        f"{tokens / 1e9:.1f} billion",
        f"{steps:,}",
        *(f"{h:.2g} h" for h in hours),
    ]


def test_a_hundred_million_pairs() -> None:
    tokens = PAIRS * TOKENS_A_PAIR * EPOCHS
    for name in NAMES:
        hours = [tokens / speed(name, measured) / 3600 for measured in (ONE_A100, EIGHT_A100, 8 * EIGHT_A100)]
        assert cells(f"100 million pairs, {name}") == [
            f"{tokens / 1e9:.1f} billion",
            f"{tokens / 400_000:,.0f}",
            *(f"{h:.2g} h" for h in hours),
        ]


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_of_communication(name: str) -> None:
    for num_gpus, link in ((8, "NVLink"), (64, "InfiniBand"), (64, "Ethernet")):
        seconds = all_reduce_seconds(name, num_gpus, LINKS[link])
        hidden_behind = seconds * speed(name, ONE_A100)
        tokens = 25_000 / num_gpus
        share = min(1, tokens / hidden_behind)
        assert cells(f"{name}, {num_gpus} GPUs, {link}") == [
            f"{seconds * 1000:,.0f} ms",
            f"{_rounded_up(hidden_behind):,}",
            f"{_rounded_up(num_gpus * hidden_behind):,}",
            f"{share:.0%}",
        ]


def test_files_and_host_memory() -> None:
    for pairs, label in ((4.5e6, "4.5 million pairs"), (100e6, "100 million pairs")):
        ids = pairs * 2 * (4 * TOKENS_A_PAIR + 8 + 4)
        assert cells(label) == [
            f"{ids / 1e9:.1f} GB",
            f"{8 * pairs / 1e6:,.0f} to {16 * pairs / 1e6:,.0f} MB",
            f"{4 * pairs / 1e6:,.0f} MB",
            f"{20 * pairs / 1e6:,.0f} MB",
        ]


def _rounded_up(number: float) -> int:
    """To two digits: a bound must not be rounded down."""
    unit = 10.0 ** (int(math.log10(number)) - 1)
    return int(math.ceil(number / unit) * unit)
