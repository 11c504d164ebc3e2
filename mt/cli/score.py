"""`mt score`: how probable a model finds given translations."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt.cli.logs import invite_typing, say, show_logs
from mt.cli.options import (
    CheckpointOption,
    DeviceOption,
    EnsembleOption,
    PrecisionOption,
    RunOption,
    find_ensemble,
    find_run,
)
from mt.display import counted, in_precision, progress_bar
from mt.errors import DataError, LinesError
from mt.inference.arriving_lines import arriving, count_lines, lines_of_file, lines_of_stdin

if TYPE_CHECKING:
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.score import ScoredPair


def score(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOURCES TRANSLATIONS",
            help="Two UTF-8 files, line by line. Default: lines of source<TAB>translation from stdin.",
        ),
    ] = None,
    run: RunOption = None,
    ensemble: EnsembleOption = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Add a column with each token and its log-probability.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
) -> None:
    """Score existing translations by the probability that the model gives them.

    Writes a line for each, with columns for log-probability, number of tokens, perplexity and unknown words.

    The log-probability is a natural logarithm, summed over all tokens and the end-of-sentence token.
    A word that is not in the vocabulary is scored as <unk>.
    """
    show_logs()
    if files and len(files) != 2:
        raise DataError("give two files, the sources and their translations, or no file and pairs on stdin.")
    found = find_run(run)
    from mt.device import choose_device
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.score import perplexity

    translator = ModelTranslator.from_run(
        found,
        checkpoint=checkpoint,
        device=choose_device(device),
        others=find_ensemble(ensemble),
        precision=precision,
    )
    num_pairs = num_tokens = num_unknown = 0
    log_prob = 0.0
    is_file = files is not None and not sys.stdout.isatty()
    total = count_lines(files[0]) if files and is_file else None
    with progress_bar(total, unit="lines", description="scoring", shown=is_file) as bar:
        for pairs in arriving(_pairs_of_files(*files) if files else _pairs_of_stdin()):
            scored, stopped_by = _score(translator, pairs, num_pairs + 1)
            num_pairs += len(scored)
            num_tokens += sum(len(pair.tokens) for pair in scored)
            num_unknown += sum(pair.num_unknown for pair in scored)
            log_prob += sum(pair.log_prob for pair in scored)
            rows = "".join(
                _row(pair, perplexity(pair.log_prob, len(pair.tokens)), with_tokens=tokens) for pair in scored
            )
            sys.stdout.write(rows)
            sys.stdout.flush()
            bar.update(len(scored))
            if stopped_by is not None:
                raise stopped_by
    if num_pairs:
        say(
            f"{counted(num_pairs, 'translation')}, {counted(num_tokens, 'token')}, {num_unknown:,} of them "
            f"unknown: log-probability {log_prob:.4f}, perplexity {perplexity(log_prob, num_tokens):.4f}"
            f"{in_precision(translator.precision)}"
        )


def _score(
    translator: "ModelTranslator", pairs: Sequence[tuple[str, str]], first_line: int
) -> "tuple[list[ScoredPair], LinesError | None]":
    """Score all pairs, or those before the first that cannot be scored; also return why not."""
    stopped_by = None
    while True:
        try:
            return translator.score(pairs, first_line=first_line), stopped_by
        except LinesError as error:
            stopped_by = error
            pairs = pairs[: min(error.reasons) - first_line]


def _row(pair: "ScoredPair", perplexity: float, *, with_tokens: bool) -> str:
    columns = [f"{pair.log_prob:.4f}", str(len(pair.tokens)), f"{perplexity:.4f}", str(pair.num_unknown)]
    if with_tokens:
        columns.append(" ".join(map("{}={:.4f}".format, pair.tokens, pair.log_probs)))
    return "\t".join(columns) + "\n"


def _pairs_of_files(sources: Path, translations: Path) -> Iterator[tuple[str, str]]:
    lines = lines_of_file(translations)
    number = 0
    for number, source in enumerate(lines_of_file(sources), start=1):
        translation = next(lines, None)
        if translation is None:
            raise DataError(f"{translations} ends before line {number}, but {sources} has that line.")
        yield source, translation
    if next(lines, None) is not None:
        raise DataError(f"{sources} ends before line {number + 1}, but {translations} has that line.")


def _pairs_of_stdin() -> Iterator[tuple[str, str]]:
    invite_typing("Type a sentence, a tab and its translation, and press Enter;")
    for number, line in enumerate(lines_of_stdin(), start=1):
        source, *translations = line.split("\t")
        if len(translations) != 1:
            raise DataError(
                f"standard input, line {number} has {len(translations)} tabs, but must have exactly one, "
                "between a sentence and its translation."
            )
        yield source, translations[0]
