"""TensorBoard's images of what the decoder attends to, at each validation."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from mt.config.config import Config
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.training.attention_images import attention_images


@pytest.fixture
def translator(trained: RunDirectory) -> ModelTranslator:
    return ModelTranslator.from_run(trained, device=torch.device("cpu"))


def test_two_pairs_are_drawn_at_each_validation(
    make_config: Callable[..., Config], train_until: Callable[..., object], tmp_path: Path
) -> None:
    train_until(make_config(), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run/tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert events.Tags()["images"] == ["attention/1", "attention/2"]
    for tag in events.Tags()["images"]:
        images = events.Images(tag)
        assert [image.step for image in images] == [4, 8, 12]
        # The same pair, so that one sees the model change and nothing else.
        assert len({(image.width, image.height) for image in images}) == 1
        assert len({image.encoded_image_string for image in images}) == 3
        with Image.open(BytesIO(images[0].encoded_image_string)) as image:
            assert (image.width, image.height) == (images[0].width, images[0].height)


def test_pairs_that_are_too_short_or_too_long_are_passed_over(translator: ModelTranslator) -> None:
    good = {"src": "Anna buys milk today.", "tgt": "Anna kauft Milch heute."}
    other = {"src": "the dog sees milk.", "tgt": "der Hund sieht Milch."}
    odd = [
        {"src": "", "tgt": ""},
        {"src": "milk", "tgt": "Milch"},
        {"src": "milk " * 40, "tgt": "Milch " * 40},
    ]
    expected = attention_images(translator, [good, other])
    assert len(expected) == 2
    for ours, theirs in zip(
        attention_images(translator, [*odd, good, *odd, other, good]), expected, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert attention_images(translator, odd) == []


def test_any_text_can_be_drawn(translator: ModelTranslator) -> None:
    rows = [{"src": "<script> \x1b[31m \u202e 说 x", "tgt": "Äpfel \x1b 说 \N{GRINNING FACE} x y"}]
    [image] = attention_images(translator, rows)
    assert image.dtype == np.uint8
    assert image.ndim == 3
