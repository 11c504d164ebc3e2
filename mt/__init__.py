"""`mt` trains a Transformer for machine translation from a parallel corpus and one YAML file.

The names below are the public Python API (docs/python.md), each of them imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mt.attention_maps.alignment import attention_maps as _attention
    from mt.config.config import Config as Config
    from mt.config.load import load_config as load_config
    from mt.errors import MtError as MtError
    from mt.evaluation.compare import run_comparison
    from mt.evaluation.evaluate import run_evaluation
    from mt.export.export import export_run as export_run
    from mt.inference.translator import Translator as Translator
    from mt.preflight.check import preflight as _check
    from mt.search.strategy import Beam as Beam
    from mt.search.strategy import Constraints as Constraints
    from mt.search.strategy import Sampling as Sampling
    from mt.training.average import average_checkpoints
    from mt.training.run import run_training
    from mt.transformer.build import build_transformer as build_transformer

    # Assigned, because type checkers do not export what is imported under another name.
    attention = _attention
    average = average_checkpoints
    check = _check
    compare = run_comparison
    evaluate = run_evaluation
    train = run_training

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
__all__ = [*_WHERE]


def __dir__() -> list[str]:
    """The names of the public API, for completion."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """Import a name of the public API."""
    if name not in _WHERE:
        raise AttributeError(f"module 'mt' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)
