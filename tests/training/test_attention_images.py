"""TensorBoard's image of what the decoder attends to, at each validation."""

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

from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.training.attention_images import attention_image
from tests.fixture_types import MakeConfig


@pytest.fixture
def translator(trained: RunDirectory) -> ModelTranslator:
    return ModelTranslator.from_run(trained, device=torch.device("cpu"))


def test_one_pair_is_drawn_at_each_validation(
    make_config: MakeConfig, train_until: Callable[..., object], tmp_path: Path
) -> None:
    train_until(make_config(), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run/tensorboard"), size_guidance={"images": 0})
    events.Reload()
    images = events.Images("validation/attention")
    assert [image.step for image in images] == [4, 8, 12]
    # The same pair, so that one sees the model change and nothing else.
    assert len({(image.width, image.height) for image in images}) == 1
    assert len({image.encoded_image_string for image in images}) == 3
    with Image.open(BytesIO(images[0].encoded_image_string)) as image:
        assert (image.width, image.height) == (images[0].width, images[0].height)


def test_pairs_that_are_too_short_or_too_long_are_passed_over(translator: ModelTranslator) -> None:
    good = {"src": "Anna buys milk today.", "tgt": "Anna kauft Milch heute."}
    odd = [
        {"src": "", "tgt": ""},
        {"src": "milk", "tgt": "Milch"},
        {"src": "milk " * 40, "tgt": "Milch " * 40},
    ]
    expected = attention_image(translator, [good])
    assert expected is not None
    # A cell is as dark as its weight.
    [weights] = (
        each.cross.mean((0, 1)).numpy() for each in translator.attention([good["src"]], [good["tgt"]])
    )
    cells = expected[-18 * len(weights) :: 18, -18 * weights.shape[1] :: 18, 0]
    np.testing.assert_allclose(cells, 255 * (1 - weights**0.5), atol=1.01)
    np.testing.assert_array_equal(attention_image(translator, [*odd, good, *odd]), expected)
    assert attention_image(translator, odd) is None


def test_letters_beyond_ascii_are_drawn(translator: ModelTranslator) -> None:
    pytest.importorskip("matplotlib")
    drawn = [attention_image(translator, [{"src": f"a {x} c d", "tgt": f"a {x} c d"}]) for x in "?üöЖ"]
    assert len({image.tobytes() for image in drawn if image is not None}) == 4


def test_any_text_can_be_drawn(translator: ModelTranslator) -> None:
    rows = [{"src": "<script> \x1b[31m \u202e 说 x", "tgt": "Äpfel \x1b 说 \N{GRINNING FACE} x y"}]
    image = attention_image(translator, rows)
    assert image is not None
    assert image.dtype == np.uint8
