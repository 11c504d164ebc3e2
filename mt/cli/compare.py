"""`mt compare`: which of some systems is better, and whether the differences are significant."""

from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from mt.cli import options
from mt.cli.logs import say, show_logs
from mt.display import aligned, counted
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.evaluation.compare import Comparison


def compare(
    systems: Annotated[
        list[Path],
        Argument(metavar="A B ...", help="Runs, checkpoints or files of translations; A is the baseline."),
    ],
    to: options.ToOption = None,
    source: options.FromOption = None,
    split: Annotated[
        Literal["train", "validation", "test"], Option(help="The split of the first run's corpus.")
    ] = "test",
    data: options.TestSetOption = None,
    name: options.TestSetNameOption = None,
    beam: options.BeamOption = 1,
    length_penalty: options.LengthPenaltyOption = 1.0,
    length_normalization: options.LengthNormalizationOption = "gnmt",
    checkpoint: options.CheckpointOption = "best",
    show: Annotated[int, Option(min=0, metavar="N", help="Show the N sentences that differ most.")] = 10,
    json: options.JsonOption = None,
    device: options.DeviceOption = "auto",
) -> None:
    """Compare models, or files of translations, with the first one on the same test sentences.

    Shows the scores, their differences, and whether these are significant (paired bootstrap resampling).

    p is the probability of a difference this large if the two were equally good; below 0.05 the
    difference is commonly called significant. A run translates the test sentences first; a file
    of translations in a run directory is scored against the references of that run.
    """
    show_logs()
    systems = [options.named_run(system) for system in systems]
    for system in systems:
        if not system.exists() and not system.suffix:
            options.find_run(system)
    if not 2 <= len(systems) <= len(ascii_uppercase):
        raise ConfigError(f"give 2 to {len(ascii_uppercase)} systems to compare, not {len(systems)}.")
    options.check_output(json)
    is_any_run = any(system.is_dir() for system in systems)
    options.check_needs("a run, not only files", is_any_run, beam=beam > 1, checkpoint=checkpoint != "best")
    strategy = options.choose_beam(beam, length_penalty, length_normalization)
    from mt.evaluation.compare import run_comparison
    from mt.evaluation.evaluate import write_json

    result = run_comparison(
        systems,
        tgt=to,
        src=source,
        split=split,
        checkpoint=checkpoint,
        device=device,
        data_path=data,
        data_name=name,
        beam=strategy,
        num_shown=show,
    )
    _show(result)
    if json is not None:
        write_json([result], json)


def _show(result: "Comparison") -> None:
    letters = ascii_uppercase[: len(result.systems)]
    for letter, system in zip(letters, result.systems, strict=True):
        echo(f"{letter}  {system}")
    echo(f"{counted(result.num_sentences, 'sentence')} of {result.data}\n")
    if result.num_rewritten:
        say(f"scored in the form of the training text: {counted(result.num_rewritten, 'reference')} changed")
    metrics = list(result.scores.values())
    rows = [["", *chain.from_iterable((first.score.name, "- A", "p") for first, *_ in metrics)]]
    for letter, compared in zip(letters, zip(*metrics, strict=True), strict=True):
        row = [letter]
        for metric in compared:
            row.append(f"{metric.score.value:.2f}")
            row += ["", ""] if letter == "A" else [f"{metric.gain:+.2f}", f"{metric.p_value:.4f}"]
        rows.append(row)
    for line in aligned(rows, num_texts=1):
        echo(line)
    for first, *others in metrics:
        equal = [
            letter for letter, system in zip(letters[1:], others, strict=True) if not system.is_significant
        ]
        if equal:
            echo(f"not significant by {first.score.name}: {', '.join(equal)}")
    for first, *_ in metrics:
        echo(f"{first.score.name} signature: {first.score.signature}")
    for sentence in result.sentences:
        scores = ", ".join(f"{score:.2f}" for score in sentence.chrfpp)
        echo(f"\nsentence {sentence.number:,}, chrF2++ {scores}")
        echo(f"  source     {sentence.source}")
        for letter, translation in zip(letters, sentence.translations, strict=True):
            echo(f"  {letter}          {translation}")
        echo(f"  reference  {sentence.reference}")
