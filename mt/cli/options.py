"""Options of several commands, the rules about giving them together, and what they name."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from mt.cli.logs import say
from mt.display import shown
from mt.errors import ConfigError, DataError, RunError
from mt.files import write_atomically
from mt.inference.kept import DEFAULT
from mt.run_directory import RunDirectory, as_run, newest_run
from mt.search.strategy import Beam, LengthNormalization

if TYPE_CHECKING:
    from mt.config.config import Config
    from mt.config.model import InitFromConfig
    from mt.device import PrecisionName
    from mt.inference.translator import EngineChoice, Translator

RUNS = Path("runs")
DEMO = Path(__file__).parents[1] / "builtin" / "demo"
"""The demonstration model, an exported folder: in a wheel, or in a checkout if scripts/demo has made it."""

input_option = partial(Option, rich_help_panel="Input")
beam_option = partial(Option, rich_help_panel="Beam search")


def complete_runs() -> list[str]:
    """Completions for the shell: the runs in ``runs/`` whose names need no quotes in any shell."""
    runs = (file.parent for file in RUNS.glob("*/config.yaml"))
    return sorted(str(run) for run in runs if re.fullmatch(r"[\w.-]+", run.name))


run_option = partial(Option, autocompletion=complete_runs)

SentencesArgument = Annotated[
    list[str] | None, Argument(metavar="SENTENCE", help="The sentences. Default: the lines of stdin.")
]
RunOption = Annotated[
    Path | None, run_option(help="The run: its name, path or hub:org/name. Default: the newest in runs/.")
]
ToOption = Annotated[
    str | None,
    Option(metavar="LANGUAGE", help="The language to translate into, if the model knows several."),
]
FromOption = Annotated[
    str | None,
    Option("--from", metavar="LANGUAGE", help="The language to translate from, if there are several."),
]
EnsembleOption = Annotated[
    list[Path] | None,
    run_option(help="Average the probabilities with those of this run of the same vocabularies; repeatable."),
]
CheckpointOption = Annotated[
    str, Option(help="best, latest, or the name of a checkpoint: step_0004000, average_0004000.")
]
FileOption = Annotated[Path | None, input_option("--file", "-f", help="Translate the lines of a UTF-8 file.")]
BeamOption = Annotated[
    int, beam_option(min=1, max=100, help="Partial translations to keep; 1 is greedy search.")
]
LengthPenaltyOption = Annotated[
    float, beam_option(min=0.0, max=10.0, help="With --beam: higher values favour longer translations.")
]
LengthNormalizationOption = Annotated[
    LengthNormalization,
    beam_option(help="Divide by ((5 + length) / 6) ** penalty (gnmt), or by length ** penalty (mean)."),
]
TestSetOption = Annotated[
    str | None,
    Option(help="Another corpus, or a test set such as sacrebleu:wmt14. Default: that of the run."),
]
TestSetNameOption = Annotated[
    str | None, Option(help="With --data: the configuration of a Hub corpus that has several.")
]
SplitOption = Annotated[
    Literal["train", "validation", "test"], Option(help="The split of the corpus of the run.")
]
InitFromOption = Annotated[
    str | None, Option(help="Begin with the weights of another run, RUN or RUN@CHECKPOINT; data may differ.")
]
OverridesOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Override an option: model.d_model=512; repeatable."),
]
DeviceOption = Annotated[str, Option(help="auto, cpu, cuda or mps.")]
PrecisionOption = Annotated[
    Literal["auto", "float32", "bf16", "fp16", "int8"],
    Option(help="Of matrix products; auto: 16 bits on a GPU, int8 on a CPU if it was verified, or float32."),
]
EngineOption = Annotated[
    Literal["auto", "torch", "ctranslate2"],
    Option(help="ctranslate2, torch, or auto for ctranslate2 where it can."),
]
VerboseOption = Annotated[bool, Option("--verbose", "-v", help="Also say which engine translates, and why.")]


def check_excludes(flag: str, is_given: object, **others: object) -> None:
    """Check that none of the others, which are named after their parameters, is given beside this option."""
    if is_given and (flags := _flags(others)):
        raise ConfigError(f"{flag} and {flags[0]} are mutually exclusive: give one of them.")


def check_needs(what: str, is_met: bool, **given: object) -> None:
    """Check that none of these options is given, unless what they need ``is_met``."""
    if not is_met and (flags := _flags(given)):
        raise ConfigError(f"{flags[0]} needs {what}.")


def _flags(given: dict[str, object]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, value in given.items() if value]


def check_sentences(sentences: list[str] | None, file: Path | None) -> None:
    """Check that no run or file is given in place of a sentence, and no file beside sentences."""
    if sentences and file:
        raise DataError("give sentences or --file, not both.")
    for text in sentences or ():
        # Unlike Path, os.path takes any sentence, however long, for a path.
        if any(map(os.path.isfile, (f"{text}/config.yaml", f"{text}/mt_export.json"))):
            raise DataError(f"{text} is a run, not a sentence: give it with --run {quote(text)}.")
        if os.path.isfile(text):  # noqa: PTH113
            raise DataError(f"{text} is a file. To translate its lines: mt translate --file {quote(text)}.")


def on_one_line(sentences: list[str]) -> list[str]:
    """Sentences of the command line; one that contains a line break is still one sentence."""
    return [" ".join(sentence.split()) for sentence in sentences]


def two_columns(line: str, name: str, number: int) -> tuple[str, str]:
    """The sentence and the translation in line ``number`` of the input with that name."""
    source, *translations = line.split("\t")
    if len(translations) != 1:
        raise DataError(
            f"{name}, line {number} has {len(translations)} tabs, but must have exactly one, between a "
            "sentence and its translation."
        )
    return source, translations[0]


def check_output(out: Path | None) -> None:
    """Check before the work begins that ``out`` can be written."""
    if out is not None and (out.is_dir() or not os.access(out.parent, os.W_OK | os.X_OK)):
        remedy = "it must be a file, and its folder must exist and be writable"
        raise ConfigError(f"{shown(out)} cannot be written: {remedy}.")


def write_output(content: bytes | Iterable[str], out: Path | None) -> None:
    """Write a file, or text to standard output."""
    if out is None:
        assert not isinstance(content, bytes)
        sys.stdout.writelines(content)
        sys.stdout.flush()
        return
    write_atomically(out, content)
    say(f"Wrote {out}.")


def load_config_and_run(
    file: Path, overrides: list[str] | None, run: Path | None
) -> "tuple[Config, RunDirectory]":
    """The config, and its run: by default the one it belongs to, or ``runs/NAME`` for NAME.yaml."""
    from mt.config.load import load_config

    is_of_run = file.name == "config.yaml" and (file.parent / "checkpoints").is_dir()
    directory = RunDirectory(run or (file.parent if is_of_run else RUNS / file.stem))
    return load_config(file, overrides or []), directory


def named_run(path: Path) -> Path:
    """``runs/NAME`` for a name of a run in ``runs/``, as `mt runs` prints it; any other path as it is."""
    in_runs = RUNS / path
    return in_runs if not path.exists() and in_runs.exists() else path


def parse_origin(text: str) -> "InitFromConfig":
    """The origin of ``RUN`` or ``RUN@CHECKPOINT``, where a run is given by its name or path."""
    from mt.config.model import InitFromConfig

    run, _, checkpoint = text.partition("@")
    if not run:
        raise ConfigError(f"--init-from {text} names no run: give RUN or RUN@CHECKPOINT.")
    return InitFromConfig(run=str(named_run(Path(run))), checkpoint=checkpoint or "best")


def find_run(path: Path | None) -> RunDirectory:
    """The run at ``path`` or of that name; by default the newest in ``runs/``, named on stderr."""
    if path is not None:
        return as_run(named_run(path)).require()
    run = newest_run(RUNS)
    say(f"run: {shown(run.path)}")
    return run


def find_run_or_demo() -> Path:
    """The newest run in ``runs/``, or the demonstration model if there is no run yet; named on stderr."""
    try:
        return find_run(None).path
    except RunError:
        if not DEMO.is_dir():
            raise
    say(
        f"no trained run in {RUNS}/: translating with the demonstration model, English to German, which "
        "knows the sentences of builtin:primer"
    )
    return DEMO


@contextmanager
def installed_with(what: str) -> Iterator[None]:
    """Explain how to install a package that an import in the ``with`` block needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f"this needs the package {error.name}, which is not installed"
        raise ConfigError(f"{missing}. Install it with pip install '{what}'.") from error


def load_translator(
    path: Path | None,
    checkpoint: str,
    device: str,
    precision: "PrecisionName",
    engine: "EngineChoice",
    *,
    ensemble: list[Path] | None = None,
    dictionary: Mapping[str, str] | None = None,
    as_is: bool = False,
    keep: Sequence[str] = DEFAULT,
) -> "Translator":
    """Load a run, by default the newest one in ``runs/``, or an exported folder."""
    from mt.inference.exported_folder import RECORD
    from mt.inference.translator import Translator

    path = path and named_run(path)
    if path is None or not (path / RECORD).is_file():
        return Translator.from_run(
            find_run(path),
            checkpoint=checkpoint,
            device=device,
            dictionary=dictionary,
            others=[find_run(other) for other in ensemble or []],
            precision=precision,
            engine=engine,
            as_is=as_is,
            keep=keep,
        )
    if checkpoint != "best" or ensemble or engine == "torch":
        raise ConfigError(
            f"{path} is an exported folder: leave out --checkpoint, --ensemble and --engine torch, which are "
            "for runs."
        )
    if path == DEMO and device == "auto":
        # It gains nothing from a GPU, on which CTranslate2 may lack the libraries that it needs.
        device = "cpu"
    with installed_with("ctranslate2"):
        from mt.inference.engine.load import load_exported

        translator = load_exported(path, device=device, precision=precision, dictionary=dictionary)
    translator.read_as_written(as_is=as_is, keep=keep)
    return translator


def choose_beam(size: int, length_penalty: float, length_normalization: LengthNormalization) -> Beam | None:
    """The beam search that the options describe; None is greedy search."""
    check_needs(
        "beam search: add --beam 5",
        size > 1,
        length_penalty=length_penalty != 1.0,
        length_normalization=length_normalization != "gnmt",
    )
    if size == 1:
        return None

    return Beam(size, length_penalty, length_normalization)
