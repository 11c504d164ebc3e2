"""A model that does not fit into memory, however small its batches."""

from collections.abc import Iterator
from contextlib import contextmanager

from mt.config.config import Config
from mt.device import is_out_of_memory
from mt.errors import TrainingError


@contextmanager
def explain_out_of_memory(config: Config) -> Iterator[None]:
    """Say what can be made smaller, where splitting batches does not help.

    Raises:
        TrainingError: Where what is done meanwhile does not fit.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "the model and its optimizer do not fit into memory. Lower model.d_model "
            f"({config.model.d_model}), model.d_ff ({config.model.d_ff}), tokenizer.max_size or "
            f"data.max_length ({config.data.max_length:,})."
        ) from error
