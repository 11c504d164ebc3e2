"""Maps of a small run."""

import pytest
import torch

from mt.attention_maps.alignment import AttentionMaps, attention_maps
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory

# What could become markup, or control a terminal.
HOSTILE = "<script>alert(1)</script> \x1b[31m"


@pytest.fixture
def translator(trained: RunDirectory) -> ModelTranslator:
    return ModelTranslator.from_run(trained, device=torch.device("cpu"))


@pytest.fixture
def maps(translator: ModelTranslator) -> AttentionMaps:
    """Of two sentences, the first of which is hostile."""
    return attention_maps(translator, [HOSTILE, "Anna buys two red apples today."])
