"""`mt translate`: sentences in, translations out, one line for one line."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt.cli.arriving_lines import arriving, lines_of_file, lines_of_stdin
from mt.cli.logs import show_logs
from mt.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    EnsembleOption,
    LengthNormalizationOption,
    LengthPenaltyOption,
    RunOption,
    find_ensemble,
    find_run,
)
from mt.cli.search_options import (
    DictionaryOption,
    FileOption,
    KeepUnkOption,
    MinLengthOption,
    NBestOption,
    NoRepeatNgramOption,
    PrefixColumnOption,
    PrefixOption,
    SampleOption,
    SeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    choose_strategy,
)
from mt.errors import ConfigError, DataError

if TYPE_CHECKING:
    from mt.pipeline.pieces import Translation


def translate(
    sentences: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE", help="What to translate. Default: stdin.")
    ] = None,
    run: RunOption = None,
    ensemble: EnsembleOption = None,
    file: FileOption = None,
    beam: BeamOption = 1,
    length_penalty: LengthPenaltyOption = 1.0,
    length_normalization: LengthNormalizationOption = "gnmt",
    n_best: NBestOption = None,
    sample: SampleOption = False,
    temperature: TemperatureOption = 1.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    seed: SeedOption = 1,
    min_length: MinLengthOption = 0,
    no_repeat_ngram: NoRepeatNgramOption = 0,
    prefix: PrefixOption = None,
    prefix_column: PrefixColumnOption = False,
    keep_unk: KeepUnkOption = False,
    dictionary: DictionaryOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Translate sentences, a file, or standard input: one line out for one line in, in order, on stdout."""
    show_logs()
    _refuse_contradictions(sentences, file, prefix, prefix_column, keep_unk, dictionary)
    found = find_run(run)
    strategy = choose_strategy(
        beam=beam,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        n_best=n_best,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    from mt.device import choose_device
    from mt.pipeline.carried_words import read_dictionary
    from mt.pipeline.translator import Translator
    from mt.search.request import Constraints

    translator = Translator.from_run(
        found,
        checkpoint=checkpoint,
        device=choose_device(device),
        dictionary=None if dictionary is None else read_dictionary(dictionary),
        others=find_ensemble(ensemble),
    )
    num_before = 0
    for lines in _blocks(sentences, file):
        prefixes = [prefix] * len(lines) if prefix else []
        if prefix_column:
            lines, prefixes = _columns(lines)
        translations = translator.n_best(
            lines,
            num_best=n_best or 1,
            strategy=strategy,
            constraints=Constraints(min_length, no_repeat_ngram),
            prefixes=prefixes,
            keep_unk=keep_unk,
            refuse_long=True,
            first_line=num_before + 1,
            show_progress=file is not None,
        )
        _write(translations, None if n_best is None else num_before + 1)
        num_before += len(lines)


def _refuse_contradictions(
    sentences: list[str] | None,
    file: Path | None,
    prefix: str | None,
    prefix_column: bool,
    keep_unk: bool,
    dictionary: Path | None,
) -> None:
    if sentences and file:
        raise DataError("give sentences or --file, not both.")
    if prefix is not None and prefix_column:
        raise ConfigError("--prefix and --prefix-column both say how to begin: give one of the two.")
    if prefix_column and sentences:
        raise ConfigError("--prefix-column is for lines of a file or of stdin: take --prefix with sentences.")
    if dictionary is not None and keep_unk:
        raise ConfigError(
            "--dictionary writes unknown words otherwise, and --keep-unk leaves them: give one of the two."
        )


def _blocks(sentences: list[str] | None, file: Path | None) -> Iterator[list[str]]:
    """The lines to translate, as many at a time as have arrived."""
    if sentences:
        # A sentence with a line break in it is still one sentence.
        yield [" ".join(sentence.split()) for sentence in sentences]
    elif file is not None:
        yield from arriving(lines_of_file(file))
    else:
        yield from arriving(lines_of_stdin("Type a sentence and press Enter;"))


def _columns(lines: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first tab of each line, and what behind it."""
    columns = [line.partition("\t") for line in lines]
    return [source for source, _, _ in columns], [beginning for _, _, beginning in columns]


def _write(translations: "Sequence[Sequence[Translation]]", first_line: int | None) -> None:
    """The best of each line; where lines are to be numbered, all of them, with their scores."""
    if first_line is None:
        written = [best.text for best, *_ in translations]
    else:
        written = [
            f"{line}\t{each.score:.4f}\t{each.log_prob:.4f}\t{each.text}"
            for line, best_first in enumerate(translations, first_line)
            for each in best_first
        ]
    sys.stdout.write("".join(line + "\n" for line in written))
    sys.stdout.flush()
