"""`mt compare`: which of some systems is better, and whether the differences are significant."""

from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path
from statistics import fmean
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from mt.cli import options
from mt.cli.logs import say
from mt.cli.tables import FormatOption, JsonFlag, print_json, print_table
from mt.display import counted
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
    split: options.SplitOption = "test",
    data: options.TestSetOption = None,
    name: options.TestSetNameOption = None,
    beam: options.BeamOption = 1,
    length_penalty: options.LengthPenaltyOption = 1.0,
    length_normalization: options.LengthNormalizationOption = "gnmt",
    checkpoint: options.CheckpointOption = "best",
    show: Annotated[int, Option(min=0, metavar="N", help="Show the N sentences that differ most.")] = 10,
    json: JsonFlag = False,
    device: options.DeviceOption = "auto",
    against: Annotated[
        list[Path] | None,
        Option(
            metavar="B ...", help="Compare two settings: all of A ... are seeds of one, these of another."
        ),
    ] = None,
    table: FormatOption = None,
) -> None:
    """Compare models, or files of translations, with the first one on the same test sentences.

    Shows the scores, their differences, and whether these are significant (paired bootstrap resampling).

    p is the probability of a difference this large if the two were equally good; below 0.05 the
    difference is commonly called significant. With --against, it is that with other seeds, too.

    A run translates the test sentences first; a file of translations in a run directory is scored against
    the references of that run.
    """
    others = [_find_system(system) for system in against or []]
    first = [_find_system(system) for system in systems]
    systems = [*first, *others]
    if not 2 <= len(systems) <= len(ascii_uppercase):
        raise ConfigError(f"give 2 to {len(ascii_uppercase)} systems to compare, not {len(systems)}.")
    options.check_excludes("--json", json, format=table)
    is_any_run = any(system.is_dir() for system in systems)
    options.check_needs("a run, not only files", is_any_run, beam=beam > 1, checkpoint=checkpoint != "best")
    strategy = options.choose_beam(beam, length_penalty, length_normalization)
    from mt.evaluation.compare import run_comparison

    result = run_comparison(
        first,
        against=others,
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
    if json:
        print_json(result)
        return
    letters = [*ascii_uppercase[: len(systems)]]
    names = [str(system) for system in systems]
    if others:
        letters = ["A"] * len(first) + ["B"] * len(others)
        names = []
        for group in (first, others):
            # What their names begin with, also within a part of a path, and how many they are.
            beginning = commonprefix([str(system) for system in group])  # noqa: RUF071
            names.append(f"{beginning.rstrip('-_.')} ({len(group)})")
    if table is None:
        for letter, file in zip(letters, result.systems, strict=True):
            echo(f"{letter}  {file}")
        echo(f"{counted(result.num_sentences, 'sentence')} of {result.data}\n")
        if result.num_rewritten:
            changed = counted(result.num_rewritten, "reference")
            say(f"scored in the form of the training text: {changed} changed")
        names = [*dict.fromkeys(letters)]
    head, rows, notes = _table(result, names, len(first))
    print_table(head, rows, table or "text")
    for note in notes:
        (echo if table is None else say)(note)
    for sentence in result.sentences if table is None else ():
        scores = ", ".join(f"{score:.2f}" for score in sentence.chrfpp)
        echo(f"\nsentence {sentence.number:,}, chrF2++ {scores}")
        echo(f"  source     {sentence.source}")
        for letter, translation in zip(letters, sentence.translations, strict=True):
            echo(f"  {letter}          {translation}")
        echo(f"  reference  {sentence.reference}")


def _find_system(path: Path) -> Path:
    """A file of translations, or the folder of a run."""
    path = options.named_run(path)
    return path if path.exists() or path.suffix else options.find_run(path).path


def _table(
    result: "Comparison", names: Sequence[str], num_first: int
) -> tuple[list[str], list[list[str]], list[str]]:
    """The titles, a row for each name of a system or a group, and notes on significance and signatures."""
    from mt.evaluation.scores import SIGNIFICANT
    from mt.reports.runs import over_seeds

    head = [""]
    rows = [[name] for name in names]
    notes = []
    signatures = []
    for key, compared in result.scores.items():
        metric = compared[0].score.name
        head += [metric, "- A", "p"]
        values = [each.score.value for each in compared]
        groups = [[value] for value in values]
        p_values = [each.p_value for each in compared]
        if result.groups:
            groups = [values[:num_first], values[num_first:]]
            p_values = [1.0, result.groups[key]]
        rows[0] += [over_seeds(groups[0]), "", ""]
        equal = []
        for row, group, p_value in zip(rows[1:], groups[1:], p_values[1:], strict=True):
            gain = fmean(group) - fmean(groups[0])
            row += [over_seeds(group), f"{gain:+.2f}", f"{p_value:.4f}"]
            if p_value >= SIGNIFICANT:
                equal.append(row[0])
        if equal:
            notes.append(f"not significant by {metric}: {', '.join(equal)}")
        signatures.append(f"{metric} signature: {compared[0].score.signature}")
    return head, rows, notes + signatures
