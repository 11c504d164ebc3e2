"""Options shared by several commands, and the many options of `mt translate`."""

import math
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from mt import processes
from mt.cli.logs import say
from mt.errors import ConfigError
from mt.search.strategy import LARGEST_SEED

if TYPE_CHECKING:
    from mt.inference.translator import EngineChoice
    from mt.run_directory import RunDirectory
    from mt.search.hypothesis import LengthNormalization
    from mt.search.strategy import Beam, Sampling

RUNS = Path("runs")
LARGEST_BEAM = 100
_BEAM = "Beam search"


def is_run(argument: str) -> bool:
    """Whether an argument is the path of a run or of an exported folder."""
    try:
        return any(Path(argument, name).is_file() for name in ("config.yaml", "mt_export.json"))
    except OSError:  # For example, too long for a file name.
        return False


def refuse_run_as_sentence(sentences: list[str] | None) -> None:
    """Check that no run is given in place of a sentence, which the newest run would then translate."""
    if (run := next(filter(is_run, sentences or ()), None)) is not None:
        raise ConfigError(f"{run} is a run, not a sentence: give it with --run {shlex.quote(run)}.")


def complete_runs() -> list[str]:
    """Completions for the shell: the runs in ``runs/`` whose names need no quotes in any shell."""
    runs = (file.parent for file in RUNS.glob("*/config.yaml"))
    return sorted(str(run) for run in runs if re.fullmatch(r"[\w.-]+", run.name))


RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="PATH",
        help="The run directory. Default: the newest run in runs/.",
        autocompletion=complete_runs,
    ),
]
CheckpointOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="best, latest, or the name of a checkpoint: step_0004000, average_0004000."
    ),
]
BeamOption = Annotated[
    int,
    typer.Option(
        "--beam",
        min=1,
        max=LARGEST_BEAM,
        help="Beam size: how many partial translations to keep; 1 is greedy search.",
        rich_help_panel=_BEAM,
    ),
]


def _number(value: float) -> float:
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


LengthPenaltyOption = Annotated[
    float,
    typer.Option(
        callback=_number,
        min=0.0,
        max=10.0,
        help="With --beam: higher values favour longer translations.",
        rich_help_panel=_BEAM,
    ),
]
LengthNormalizationOption = Annotated[
    Literal["gnmt", "mean"],
    typer.Option(
        help="With --beam: divide log-probabilities by ((5 + length) / 6) ** penalty (gnmt), or by "
        "length ** penalty (mean), which is the mean over the tokens if the penalty is 1.",
        rich_help_panel=_BEAM,
    ),
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        metavar="PATH",
        help="Average the probabilities of --run with those of this run, which must have the same "
        "vocabularies; repeatable.",
        autocompletion=complete_runs,
    ),
]
TestSetOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Another corpus in the same languages, or a standard test set such as sacrebleu:wmt14. "
        "Default: the run's own.",
    ),
]
TestSetNameOption = Annotated[
    str | None,
    typer.Option("--name", help="With --data: the configuration of a Hub corpus that has several."),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write all results to this file.")
]
DeviceOption = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or mps.")]
PrecisionOption = Annotated[
    Literal["auto", "float32", "bf16", "fp16", "int8"],
    typer.Option(
        help="The precision of matrix products; auto is 16 bits on a GPU, and on a CPU int8 if the run was "
        "found to lose no quality by it, else float32.",
    ),
]

EngineOption = Annotated[
    Literal["auto", "torch", "ctranslate2", "mt"],
    typer.Option(
        "--engine",
        help="What searches: ctranslate2, torch (formerly mt), or auto for ctranslate2 where it can do what "
        "is asked.",
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also say which engine translates, and why.")
]

# Options of `mt translate` only, in groups.
_INPUT = "Input"
_SAMPLING = "Sampling"
_OUTPUT = "Constraints and unknown words"

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
        help="For a line that is too long or not UTF-8: stop after writing all lines before it, write an "
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
        rich_help_panel=_BEAM,
    ),
]
SampleOption = Annotated[
    bool,
    typer.Option(
        "--sample",
        help="Sample translations at random by their probability, instead of searching for the best.",
        rich_help_panel=_SAMPLING,
    ),
]
TemperatureOption = Annotated[
    float,
    typer.Option(
        callback=_number,
        min=0.01,
        max=100.0,
        help="Divide the logits by this: below 1, likely tokens become more likely; above 1, less likely.",
        rich_help_panel=_SAMPLING,
    ),
]
TopKOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="K",
        help="Sample from the K most probable tokens only; 0 samples from all.",
        rich_help_panel=_SAMPLING,
    ),
]
TopPOption = Annotated[
    float,
    typer.Option(
        callback=_number,
        min=0.001,
        max=1.0,
        metavar="P",
        help="Sample from the smallest set of most probable tokens with total probability P; 1 samples "
        "from all.",
        rich_help_panel=_SAMPLING,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=LARGEST_SEED,
        help="The same seed gives the same translations.",
        rich_help_panel=_SAMPLING,
    ),
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
        help="Write at most N tokens for each sentence; longer translations are cut off.",
        rich_help_panel=_OUTPUT,
    ),
]
NoRepeatNgramOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Never repeat a sequence of N tokens in a translation; 0 allows repetition.",
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
        help="Allow <unk> in the translation for words that the model does not know.",
        rich_help_panel=_OUTPUT,
    ),
]
DictionaryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Translate words as listed in this file, in lines of source<TAB>target.",
        rich_help_panel=_OUTPUT,
    ),
]


def find_run(path: Path | None) -> "RunDirectory":
    """The run at ``path``; by default the newest in ``runs/``, which is then named on stderr."""
    from mt.run_directory import RunDirectory, newest_run

    if path is not None:
        return RunDirectory(path).require()
    run = newest_run(RUNS)
    if processes.is_first():
        say(f"run: {run.path}")
    return run


def engine_name(given: str) -> "EngineChoice":
    """The engine of that name, or of the one that it had before."""
    return cast("EngineChoice", "torch" if given == "mt" else given)


def find_ensemble(paths: list[Path] | None) -> "list[RunDirectory]":
    """The runs at these paths; None gives an empty list."""
    from mt.run_directory import RunDirectory

    return [RunDirectory(path).require() for path in paths or []]


def choose_beam(
    size: int, length_penalty: float, length_normalization: "LengthNormalization"
) -> "Beam | None":
    """The beam search that the options describe; None is greedy search."""
    if size == 1:
        if (length_penalty, length_normalization) != (1.0, "gnmt"):
            raise ConfigError("--length-penalty and --length-normalization need beam search: add --beam 5.")
        return None
    from mt.search.strategy import Beam

    return Beam(size, length_penalty, length_normalization)


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
    """The decoding strategy that the options describe; None is greedy search."""
    if sample and beam > 1:
        raise ConfigError("--sample and --beam are mutually exclusive: give one of them.")
    if not sample and (temperature, top_k, top_p, seed) != (1.0, 0, 1.0, 1):
        raise ConfigError("--temperature, --top-k, --top-p and --seed are for sampling: add --sample.")
    if n_best is not None and sample:
        raise ConfigError("--n-best needs beam search: leave --sample out, or sample with several seeds.")
    if n_best is not None and n_best > beam:
        raise ConfigError(f"--n-best {n_best} needs a beam of at least that size: add --beam {n_best}.")
    found = choose_beam(beam, length_penalty, length_normalization)
    if not sample:
        return found
    from mt.search.strategy import Sampling

    return Sampling(temperature, seed, top_k, top_p)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 90s, 45m, 3h50m or 1d2h."""
    match = re.fullmatch(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text, re.ASCII)
    seconds = (
        sum(int(count or 0) * unit for count, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
        if match
        else 0
    )
    if not 0 < seconds <= 36_500 * 86_400:
        raise ConfigError(f"--max-time: {text!r} is not a duration. Write it as 90s, 45m, 3h50m or 1d2h.")
    return float(seconds)
