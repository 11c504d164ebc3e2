"""`mt compare`: which of two systems is better, and whether the difference is significant."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from mt.cli import options
from mt.cli.logs import show_logs
from mt.display import counted
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.evaluation.analysis import SentenceOfTwo
    from mt.evaluation.compare import Comparison


def compare(
    first: Annotated[Path, Argument(metavar="A", help="A run, checkpoint or file of translations.")],
    second: Annotated[Path, Argument(metavar="B", help="What to compare it with.")],
    split: Annotated[
        Literal["train", "validation", "test"] | None,
        Option(help="The split of the first run's corpus.", show_default="test"),
    ] = None,
    data: options.TestSetOption = None,
    name: options.TestSetNameOption = None,
    references: Annotated[Path | None, Option(help="For two files outside runs: their references.")] = None,
    beam: options.BeamOption = 1,
    length_penalty: options.LengthPenaltyOption = 1.0,
    length_normalization: options.LengthNormalizationOption = "gnmt",
    checkpoint: options.CheckpointOption = "best",
    show: Annotated[int, Option(min=0, metavar="N", help="Show the N sentences that differ most.")] = 10,
    json: options.JsonOption = None,
    device: options.DeviceOption = "auto",
) -> None:
    """Compare two models, or two files of translations, on the same test sentences.

    Shows the difference of each score and whether it is significant (paired bootstrap resampling).

    p is the probability of a difference this large if the two were equally good; below 0.05 the
    difference is commonly called significant. A run translates the test sentences first; a file
    of translations in a run directory is scored against the references of that run.
    """
    show_logs()
    for system in (first, second):
        if not system.exists():
            raise ConfigError(f"there is no {system}: give a run directory or a file of translations.")
    options.check_output(json)
    for option in ({"data": data}, {"split": split}, {"name": name}):
        options.check_at_most_one(references=references, **option)
    is_any_run = first.is_dir() or second.is_dir()
    options.check_needs("a run, not two files", is_any_run, beam=beam > 1, checkpoint=checkpoint != "best")
    strategy = options.choose_beam(beam, length_penalty, length_normalization)
    from mt.device import choose_device
    from mt.evaluation.compare import run_comparison
    from mt.evaluation.evaluate import write_json

    result = run_comparison(
        (first, second),
        split=split or "test",
        checkpoint=checkpoint,
        device=choose_device(device),
        data_path=data,
        data_name=name,
        references=references,
        beam=strategy,
        num_shown=show,
    )
    _show(result)
    if json is not None:
        write_json(result, json)


def _show(result: "Comparison") -> None:
    echo(f"A  {result.systems[0]}\nB  {result.systems[1]}")
    echo(f"{counted(result.num_sentences, 'sentence')} of {result.data}\n")
    echo("              A       B   B - A       p")
    for score in result.scores.values():
        echo(
            f"{score.first.name:8} {score.first.value:6.2f}  {score.second.value:6.2f}  {score.gain:+6.2f}  "
            f"{score.p_value:6.4f}{'' if score.is_significant else '  not significant'}"
        )
    for score in result.scores.values():
        echo(f"{score.first.name} signature: {score.first.signature}")
    for sentence in result.sentences:
        _show_sentence(sentence)


def _show_sentence(sentence: "SentenceOfTwo") -> None:
    scores = sentence.chrfpp
    echo(f"\nsentence {sentence.number:,}, chrF2++ {scores[0]:.2f} and {scores[1]:.2f}")
    if sentence.source is not None:
        echo(f"  source     {sentence.source}")
    echo(f"  A          {sentence.translations[0]}")
    echo(f"  B          {sentence.translations[1]}")
    echo(f"  reference  {sentence.reference}")
