"""`mt` trains a Transformer for machine translation from a parallel corpus and one YAML file.

The names below are the public Python API (docs/python.md). Each is imported when it is first used, so that
``import mt`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mt.attention_maps.alignment import attention_maps as attention
    from mt.config.config import Config
    from mt.config.load import load_config
    from mt.errors import MtError
    from mt.evaluation.compare import run_comparison as compare
    from mt.evaluation.evaluate import run_evaluation as evaluate
    from mt.export.export import export_run
    from mt.inference.translator import Translator
    from mt.preflight.check import preflight as check
    from mt.search.strategy import Beam, Constraints, Sampling
    from mt.training.average import average_checkpoints as average
    from mt.training.run import run_training as train
    from mt.transformer.build import build_transformer

__version__ = "0.2.0"

_WHERE = {
    "Beam": ("mt.search.strategy", "Beam"),
    "Config": ("mt.config.config", "Config"),
    "Constraints": ("mt.search.strategy", "Constraints"),
    "MtError": ("mt.errors", "MtError"),
    "Sampling": ("mt.search.strategy", "Sampling"),
    "Translator": ("mt.inference.translator", "Translator"),
    "attention": ("mt.attention_maps.alignment", "attention_maps"),
    "average": ("mt.training.average", "average_checkpoints"),
    "build_transformer": ("mt.transformer.build", "build_transformer"),
    "check": ("mt.preflight.check", "preflight"),
    "compare": ("mt.evaluation.compare", "run_comparison"),
    "evaluate": ("mt.evaluation.evaluate", "run_evaluation"),
    "export_run": ("mt.export.export", "export_run"),
    "load_config": ("mt.config.load", "load_config"),
    "train": ("mt.training.run", "run_training"),
}
__all__ = [
    "Beam", "Config", "Constraints", "MtError", "Sampling", "Translator", "attention", "average",
    "build_transformer", "check", "compare", "evaluate", "export_run", "load_config", "train",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a name of the public API."""
    if name not in _WHERE:
        raise AttributeError(f"module 'mt' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)
