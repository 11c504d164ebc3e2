"""What an export needs to know about its target library."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mt.config.model import ModelConfig
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.inference.exported_folder import ExportPrecision, Target
from mt.inference.text_search import TextSearch
from mt.transformer.transformer import Transformer


class WriteModel(Protocol):
    """Writes a model and everything else that the library needs into an existing folder."""

    def __call__(
        self,
        model: Transformer,
        config: ModelConfig,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        folder: Path,
        *,
        max_length: int,
        precision: ExportPrecision,
    ) -> None:
        """Write the model, which is on the CPU and in float32; ``max_length`` includes EOS."""


@dataclass(frozen=True)
class ExportTarget:
    """A library that models can be exported to."""

    name: Target
    precisions: Sequence[ExportPrecision]
    """The precisions in which weights can be saved."""
    differences: Sequence[str]
    """How its searches differ from ours, as sentences for the model card."""
    example: str
    """The text of ``example.py``: a program that translates the lines of stdin without mt."""
    write: WriteModel
    load: Callable[[Path], TextSearch]
    """Loads an exported folder with its tokenizers, to translate with that library."""
