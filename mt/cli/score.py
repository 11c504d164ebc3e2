"""`mt score`: how probable a model finds given translations."""

import math
import sys
from dataclasses import asdict
from typing import Annotated

from typer import Option

from mt.cli import options
from mt.cli.lines import arriving
from mt.cli.logs import print_input_hint, say
from mt.cli.tables import JsonFlag, print_json
from mt.data.sources.text import STDIN_NAME, lines_of
from mt.display import counted, in_precision
from mt.errors import LinesError


def score(
    run: options.RunOption = None,
    to: options.ToOption = None,
    ensemble: options.EnsembleOption = None,
    tokens: Annotated[bool, Option(help="Add a column with each token and its log-probability.")] = False,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "float32",
    json: JsonFlag = False,
) -> None:
    """Score existing translations: paste sources translations | mt score

    Reads lines of source<TAB>translation, and writes a line for each, with columns for log-probability,
    number of tokens, perplexity and unknown words; with --json, an object that has the tokens, too.

    The log-probability is a natural logarithm, summed over all tokens and the end-of-sentence token.
    A word that is not in the vocabulary is scored as <unk>.
    """
    translator = options.load_translator(
        run, checkpoint, device, precision, "auto", ensemble=ensemble, as_is=True, keep=()
    )
    translator = translator.into(to)
    num_pairs = num_tokens = num_unknown = 0
    log_prob = 0.0
    print_input_hint("Type a sentence, a tab and its translation, and press Enter;")
    numbered = enumerate(lines_of(None, "pairs"), start=1)
    for pairs in arriving(options.two_columns(line, STDIN_NAME, number) for number, line in numbered):
        first_line = num_pairs + 1
        stopped_by = None
        try:
            scored = translator.score(pairs, first_line=first_line)
        except LinesError as error:
            stopped_by = error
            scored = translator.score(pairs[: min(error.reasons) - first_line], first_line=first_line)
        for pair in scored:
            num_pairs += 1
            num_tokens += len(pair.tokens)
            num_unknown += pair.num_unknown
            log_prob += pair.log_prob
            perplexity_of_pair = perplexity(pair.log_prob, len(pair.tokens))
            if json:
                figures = {"log_prob": pair.log_prob, "perplexity": perplexity_of_pair}
                print_json(figures | asdict(pair))
                continue
            row = f"{pair.log_prob:.4f}\t{len(pair.tokens)}\t{perplexity_of_pair:.4f}\t{pair.num_unknown}"
            if tokens:
                row += "\t" + " ".join(map("{}={:.4f}".format, pair.tokens, pair.log_probs))
            sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
        if stopped_by is not None:
            raise stopped_by
    if num_pairs:
        say(
            f"{counted(num_pairs, 'translation')}, {counted(num_tokens, 'token')}, {num_unknown:,} of them "
            f"unknown: log-probability {log_prob:.4f}, perplexity {perplexity(log_prob, num_tokens):.4f}"
            f"{in_precision(translator.engine.precision)}"
        )


def perplexity(log_prob: float, num_tokens: int) -> float:
    """``exp(-log_prob / num_tokens)``."""
    return math.exp(min(-log_prob / num_tokens, 700.0))
