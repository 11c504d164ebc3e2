"""The options of `mt translate` alone: what it reads, how it searches or draws, and unknown words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mt.cli.options import choose_beam
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.search.hypothesis import LengthNormalization
    from mt.search.strategy import Beam, Sampling

_INPUT = "Input"
_SAMPLING = "Sampling"
_OUTPUT = "What a translation must be"

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Translate the lines of a UTF-8 file.", rich_help_panel=_INPUT
    ),
]
StartLineOption = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Start at this line of the file or of stdin.", rich_help_panel=_INPUT
    ),
]
OnErrorOption = Annotated[
    Literal["stop", "empty", "copy"],
    typer.Option(
        help="At a line that is too long or not UTF-8: stop once all lines before it are written, write an "
        "empty line, or copy the line.",
        rich_help_panel=_INPUT,
    ),
]
NBestOption = Annotated[
    int | None,
    typer.Option(
        "--n-best",
        min=1,
        metavar="N",
        help="With --beam: write the N best translations of each line, with columns for line number, score, "
        "log-probability and text.",
    ),
]
SampleOption = Annotated[
    bool,
    typer.Option(
        "--sample",
        help="Draw a translation at random by its probability, instead of searching for the most probable.",
        rich_help_panel=_SAMPLING,
    ),
]
TemperatureOption = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=100.0,
        help="Below 1 more careful, above 1 more daring.",
        rich_help_panel=_SAMPLING,
    ),
]
TopKOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="K",
        help="Draw from the K most probable tokens only; 0 draws from all.",
        rich_help_panel=_SAMPLING,
    ),
]
TopPOption = Annotated[
    float,
    typer.Option(
        min=0.001,
        max=1.0,
        metavar="P",
        help="Draw from the fewest tokens that together have this probability; 1 draws from all.",
        rich_help_panel=_SAMPLING,
    ),
]
SeedOption = Annotated[
    int, typer.Option(min=0, help="The same seed draws the same translations.", rich_help_panel=_SAMPLING)
]
MinLengthOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Write at least N tokens for each sentence.",
        rich_help_panel=_OUTPUT,
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Write at most N tokens for each sentence, and cut the translation there.",
        rich_help_panel=_OUTPUT,
    ),
]
NoRepeatNgramOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Never write the same N tokens twice in a sentence; 0 allows it.",
        rich_help_panel=_OUTPUT,
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Begin each translation with this text.", rich_help_panel=_OUTPUT),
]
PrefixColumnOption = Annotated[
    bool,
    typer.Option(
        "--prefix-column",
        help="Read lines of source<TAB>prefix, and begin each translation with its prefix.",
        rich_help_panel=_OUTPUT,
    ),
]
KeepUnkOption = Annotated[
    bool,
    typer.Option(
        "--keep-unk",
        help="Write <unk> where the model does not know a word, instead of another word.",
        rich_help_panel=_OUTPUT,
    ),
]
DictionaryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Translate certain words as this file says; its lines are source<TAB>target.",
        rich_help_panel=_OUTPUT,
    ),
]


def choose_strategy(
    *,
    beam: int,
    length_penalty: float,
    length_normalization: "LengthNormalization",
    n_best: int | None,
    sample: bool,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> "Sampling | Beam | None":
    """What the options ask for: to draw, to search with a beam, or, None, to search greedily.

    Raises:
        ConfigError: If they contradict each other.
    """
    if sample and beam > 1:
        raise ConfigError("--sample draws and --beam searches: give one of the two.")
    if not sample and (temperature, top_k, top_p, seed) != (1.0, 0, 1.0, 1):
        raise ConfigError("--temperature, --top-k, --top-p and --seed are for drawing: add --sample.")
    if n_best is not None and sample:
        raise ConfigError("--n-best is for a beam: leave --sample out, or draw with several seeds.")
    if n_best is not None and n_best > beam:
        raise ConfigError(f"--n-best {n_best} needs a beam that is as large: add --beam {n_best}.")
    found = choose_beam(beam, length_penalty, length_normalization)
    if not sample:
        return found
    from mt.search.strategy import Sampling

    return Sampling(temperature, seed, top_k, top_p)
