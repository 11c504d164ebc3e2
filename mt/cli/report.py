"""`mt report`: a run as a page or a model card to share with others."""

import logging
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from mt.cli.options import CheckpointOption, DeviceOption, RunOption, check_output, find_run, write_output
from mt.errors import MtError
from mt.run_directory import RunDirectory

if TYPE_CHECKING:
    from mt.reports.samples import RankedSamples

LOG = logging.getLogger(__name__)
NUM_MAPS = 3
# About 25 tokens; beyond that, a map has more cells than can be distinguished on a phone.
MOST_CHARACTERS = 120


def report(
    run: RunOption = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="The file to write. Default: standard output.")
    ] = None,
    format: Annotated[
        Literal["html", "md"], Option(help="A web page, or a model card in Markdown.")
    ] = "html",
    sentences: Annotated[
        int, Option(min=0, metavar="N", help="Show the best and worst of N validation sentences.")
    ] = 200,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Write a report of a run to share: data, curves, scores, translations, and how to reproduce it.

    The page is one file that needs no network. With --format md it is a model card for the Hugging Face Hub.
    """
    directory = find_run(run)
    check_output(out)
    from mt.attention_maps.page import script_hash
    from mt.checkpoint.store import CheckpointStore
    from mt.device import choose_device
    from mt.reports.facts import RunFacts
    from mt.reports.report import render

    choose_device(device)
    # Without the best one there is still a report, but one that was named must be there.
    if checkpoint != "best":
        CheckpointStore(directory.checkpoints_dir).require(checkpoint)
    facts = RunFacts(directory)
    left_out = list(facts.problems)
    samples = None
    maps = ""
    try:
        if sentences:
            num_maps = NUM_MAPS if format == "html" else 0
            samples, maps = _samples(directory, checkpoint, device, sentences, num_maps)
    except MtError as error:
        left_out.append(f"Translations and attention are left out: {error}")
    for reason in left_out:
        LOG.warning("%s", reason)
    script = script_hash() if maps else ""
    write_output([render(facts, format, samples, attention=maps, script_hash=script, left_out=left_out)], out)


def _samples(
    run: RunDirectory, checkpoint: str, device: str, num_sentences: int, num_attention: int
) -> "tuple[RankedSamples, str]":
    """Ranked translations, and what the model attended to in the best of them, as HTML."""
    from mt.attention_maps.alignment import attention_maps
    from mt.attention_maps.page import attention_html
    from mt.device import choose_device
    from mt.inference.loaded_model import load_model
    from mt.inference.model_translator import ModelTranslator
    from mt.reports.samples import rank_samples

    loaded = load_model(run, checkpoint)
    model = ModelTranslator(loaded, device=choose_device(device))
    translator = model.into(loaded.facts.tgt, loaded.facts.src)
    samples = rank_samples(run, loaded, translator, num_sentences=num_sentences)
    in_turn = chain.from_iterable(zip_longest(samples.worst, samples.best))
    # Sentences that were translated in parts, or cut off, have no single attention map.
    drawable = (
        sample
        for sample in in_turn
        if sample
        and all(0 < len(text) <= MOST_CHARACTERS for text in (sample.source, sample.translation))
        and len(loaded.src_tokenizer.encode(sample.source)) < translator.facts.max_length
        and len(loaded.tgt_tokenizer.encode(sample.translation)) < translator.facts.max_length
    )
    chosen = list(islice(drawable, num_attention))
    if not chosen:
        return samples, ""
    sources, targets = zip(*((sample.source, sample.translation) for sample in chosen), strict=True)
    return samples, attention_html(attention_maps(translator, sources, targets))
