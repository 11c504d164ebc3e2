"""`mt score`: how probable a model finds given translations."""

import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from mt.cli import options
from mt.cli.logs import invite_typing, say, show_logs
from mt.display import counted, in_precision, progress
from mt.errors import DataError, LinesError
from mt.inference.arriving_lines import STDIN_NAME, arriving, count_lines, lines_of_file, lines_of_stdin

if TYPE_CHECKING:
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.score import ScoredPair


def score(
    files: Annotated[
        list[Path] | None,
        Argument(metavar="SOURCES TRANSLATIONS", help="Default: lines of source<TAB>translation from stdin."),
    ] = None,
    run: options.RunOption = None,
    ensemble: options.EnsembleOption = None,
    tokens: Annotated[
        bool, Option("--tokens", help="Add a column with each token and its log-probability.")
    ] = False,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "float32",
) -> None:
    """Score existing translations by the probability that the model gives them.

    Writes a line for each, with columns for log-probability, number of tokens, perplexity and unknown words.

    The log-probability is a natural logarithm, summed over all tokens and the end-of-sentence token.
    A word that is not in the vocabulary is scored as <unk>.
    """
    show_logs()
    if files and len(files) != 2:
        raise DataError("give two files, the sources and their translations, or no file and pairs on stdin.")
    found = options.find_run(run)
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.score import perplexity

    translator = ModelTranslator.from_run(
        found,
        checkpoint=checkpoint,
        device=device,
        others=options.find_ensemble(ensemble),
        precision=precision,
    )
    num_pairs = num_tokens = num_unknown = 0
    log_prob = 0.0
    is_file = files is not None and not sys.stdout.isatty()
    total = count_lines(files[0]) if files and is_file else None
    with progress(total, unit="lines", description="scoring", shown=is_file) as advance:
        for pairs in arriving(_pairs_of_files(*files) if files else _pairs_of_stdin()):
            scored, stopped_by = _score(translator, pairs, num_pairs + 1)
            for pair in scored:
                num_pairs += 1
                num_tokens += len(pair.tokens)
                num_unknown += pair.num_unknown
                log_prob += pair.log_prob
                columns = [
                    f"{pair.log_prob:.4f}",
                    str(len(pair.tokens)),
                    f"{perplexity(pair.log_prob, len(pair.tokens)):.4f}",
                    str(pair.num_unknown),
                ]
                if tokens:
                    columns.append(" ".join(map("{}={:.4f}".format, pair.tokens, pair.log_probs)))
                sys.stdout.write("\t".join(columns) + "\n")
            sys.stdout.flush()
            advance(len(scored))
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


def _pairs_of_files(sources: Path, translations: Path) -> Iterator[tuple[str, str]]:
    pairs = zip_longest(lines_of_file(sources), lines_of_file(translations))
    for number, (source, translation) in enumerate(pairs, start=1):
        if source is None or translation is None:
            short, long = (sources, translations) if source is None else (translations, sources)
            raise DataError(f"{short} ends before line {number}, but {long} has that line.")
        yield source, translation


def _pairs_of_stdin() -> Iterator[tuple[str, str]]:
    invite_typing("Type a sentence, a tab and its translation, and press Enter;")
    for number, line in enumerate(lines_of_stdin(), start=1):
        yield options.two_columns(line, STDIN_NAME, number)
