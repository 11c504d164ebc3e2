"""The options of `mt translate` alone: how it searches, draws, begins, and what it does with odd words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt.cli.options import choose_beam
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.search.hypothesis import LengthNormalization
    from mt.search.strategy import Beam, Sampling

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="Translate the lines of a UTF-8 file.")
]
NBestOption = Annotated[
    int | None,
    typer.Option(
        "--n-best",
        min=1,
        metavar="N",
        help="With --beam: the N best of each line, each as line number, score, log-probability and text, "
        "with tabs between.",
    ),
]
SampleOption = Annotated[
    bool, typer.Option("--sample", help="Draw a translation instead of taking the likeliest words.")
]
TemperatureOption = Annotated[
    float,
    typer.Option(min=0.01, max=100.0, help="With --sample: below 1 more careful, above 1 more daring."),
]
TopKOption = Annotated[
    int,
    typer.Option(min=0, metavar="K", help="With --sample: draw from the K likeliest tokens; 0 takes all."),
]
TopPOption = Annotated[
    float,
    typer.Option(
        min=0.001,
        max=1.0,
        metavar="P",
        help="With --sample: draw from the fewest tokens that have this probability together; 1 takes all.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="With --sample: the same seed draws the same.")]
MinLengthOption = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Write at least N tokens for a sentence, the end mark not counted."
    ),
]
NoRepeatNgramOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Write no N tokens twice in a sentence; 0 lets them be.")
]
PrefixOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What each translation has to begin with.")
]
PrefixColumnOption = Annotated[
    bool,
    typer.Option(
        "--prefix-column", help="Lines in are source<TAB>beginning: how the translation of each has to begin."
    ),
]
KeepUnkOption = Annotated[
    bool, typer.Option("--keep-unk", help="Show where the model would write a word it does not know.")
]
DictionaryOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Lines of source<TAB>target: how these words are to be translated."),
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
