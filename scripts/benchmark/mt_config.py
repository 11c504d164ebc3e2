"""The configs under which `mt` is measured."""

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.model import ModelConfig
from mt.config.training import TrainingConfig
from scripts.benchmark.sizes import Size


def model_config(size: Size) -> ModelConfig:
    """Post-norm, as the paper and as Marian have it, so that all sides can compute the same."""
    return ModelConfig(
        d_model=size.d_model,
        num_heads=size.num_heads,
        d_ff=size.d_ff,
        num_encoder_layers=size.num_layers,
        num_decoder_layers=size.num_layers,
        dropout=0.1,
        norm_first=False,
    )


def run_config(size: Size, *, max_length: int) -> Config:
    """A config that is complete, for what asks for one."""
    return Config(
        data=DataConfig(path="the benchmark's own", src="src", tgt="tgt", max_length=max_length),
        model=model_config(size),
        training=TrainingConfig(max_steps=1),
    )
