"""The training batches as the config wants them: words hidden, or cut otherwise in each epoch."""

from collections.abc import Callable

from mt.config.config import Config
from mt.data.alignment import Places
from mt.data.bpe_dropout import BpeDropout
from mt.data.dataset import EncodedPairs
from mt.data.tokenizer import Tokenizer
from mt.training.batch_stream import BatchStream


def training_batches(
    config: Config,
    pairs: EncodedPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    places: Places | None,
    before_each_block: Callable[[], None] = lambda: None,
) -> BatchStream:
    """The batches of a run.

    Args:
        config: The run's config.
        pairs: The training pairs.
        tokenizers: What source and target were encoded by.
        places: For each target token the source token that it translates; None where nobody asks.
        before_each_block: Called now and then while an epoch is made; may raise to give up.
    """
    training = config.training
    dropouts = None
    if training.bpe_dropout:
        src, tgt = (_bpe_dropout(tokenizer, config) for tokenizer in tokenizers)
        dropouts = src, tgt
    return BatchStream(
        pairs,
        batch_tokens=training.batch_tokens,
        num_micro_batches=training.num_micro_batches,
        seed=training.seed,
        places=places,
        unknown_share=training.unknown_share,
        bpe_dropouts=dropouts,
        before_each_block=before_each_block,
    )


def _bpe_dropout(tokenizer: Tokenizer, config: Config) -> BpeDropout:
    return BpeDropout(
        tokenizer.merges(),
        tokenizer.space_id(),
        num_ids=tokenizer.size,
        share=config.training.bpe_dropout,
        max_length=config.data.max_length,
    )
