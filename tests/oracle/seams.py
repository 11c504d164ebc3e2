"""The only inside names of mt that the oracle uses: one small function for each concept.

Each side uses the file of its own checkout; a revision without one uses the first that was complete. So when
mt changes, this file changes with it, and has to know one way only.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets

from mt import Config, Translator
from mt.data.batches.stream import training_batches
from mt.data.corpus import load_corpus
from mt.data.prepare import prepare
from mt.run_directory import RunDirectory


def splits(config: Config) -> tuple[dict[str, datasets.Dataset], dict[str, int]]:
    """The splits, with the columns src and tgt, and how many training pairs were dropped for each reason."""
    corpus = load_corpus(config.data, config.cleaning)
    names = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
    return names, corpus.report.splits["train"].dropped


def batches(config: Config, run: Path, num_epochs: int) -> Iterator[tuple[object, ...]]:
    """The pairs of each batch, in order, then what the model gets; tokenizers are written into ``run``."""
    run.mkdir(parents=True)
    data = prepare(config, RunDirectory(run), resuming=False)
    stream = training_batches(config, data.train, data.tokenizers, data.places)
    epoch, position = 0, 0
    while epoch < num_epochs:
        if not position:
            yield from (tuple(indices.tolist()) for indices in stream.epoch(epoch).batches)
        taken = stream.take((epoch, position))
        epoch, position = taken.next_position
        for batch in taken.micro_batches:
            alignment = None if batch.alignment is None else batch.alignment.tolist()
            ids = batch.src_ids.tolist(), batch.tgt_ids.tolist(), batch.labels.tolist()
            yield (*ids, alignment, batch.dropout_seed)


def translator(run: Path, **options: Any) -> Translator:
    """The run's newest model, with the engine that is the reference, in float32."""
    return Translator.from_run(run, checkpoint="latest", device="cpu", precision="float32", **options)
