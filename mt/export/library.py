"""What is known of a library that models can be exported to."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt.inference.exported_folder import ExportPrecision, Target
from mt.inference.loaded_model import LoadedModel
from mt.inference.verify import Score, Translate


@dataclass(frozen=True)
class Library:
    """A library that models can be exported to."""

    name: Target
    precisions: Collection[ExportPrecision]
    differences: Sequence[str]
    """How only this one differs from mt, as sentences for the model card."""
    example: str
    """The text of ``example.py``: a program that translates the lines of stdin without mt."""
    write: Callable[[LoadedModel, Path, ExportPrecision], None]
    """Writes the model, which is on the CPU and in float32, and its tokenizers into an existing folder."""
    load: Callable[[Path], tuple[Translate, Score]]
    exact: Collection[str]
    """The decoding strategies with which it translates as we do in float32, but for near-ties."""
