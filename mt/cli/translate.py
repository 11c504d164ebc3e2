"""`mt translate`: translate sentences, one line out for one line in."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from mt import processes
from mt.cli.exported import find_exported, load_exported
from mt.cli.logs import invite_typing, say, show_logs
from mt.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    DictionaryOption,
    EngineOption,
    EnsembleOption,
    FileOption,
    KeepUnkOption,
    LengthNormalizationOption,
    LengthPenaltyOption,
    MaxLengthOption,
    MinLengthOption,
    NBestOption,
    NoRepeatNgramOption,
    OnErrorOption,
    PrecisionOption,
    PrefixColumnOption,
    PrefixOption,
    RunOption,
    SampleOption,
    SeedOption,
    StartLineOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    VerboseOption,
    choose_strategy,
    engine_name,
    find_ensemble,
    find_run,
    refuse_run_as_sentence,
)
from mt.cli.prompt import Prompt
from mt.cli.unusual_lines import BadLines, Block, Pairs, Search, UnknownWords
from mt.display import ProgressLines, in_precision, progress_bar
from mt.errors import ConfigError, DataError, LinesError
from mt.inference.arriving_lines import (
    STDIN,
    STDIN_NAME,
    arriving,
    count_lines,
    lines_of_file,
    lines_of_stdin,
    why_not_text,
)

if TYPE_CHECKING:
    from tqdm import tqdm

    from mt.device import PrecisionName
    from mt.inference.segments import Translation
    from mt.inference.translator import Translator
    from mt.run_directory import RunDirectory
    from mt.search.strategy import Constraints


def translate(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(metavar="SENTENCE", help="The sentences to translate. Default: stdin, or a prompt."),
    ] = None,
    run: RunOption = None,
    ensemble: EnsembleOption = None,
    file: FileOption = None,
    start_line: StartLineOption = 1,
    on_error: OnErrorOption = "stop",
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
    max_length: MaxLengthOption = None,
    no_repeat_ngram: NoRepeatNgramOption = 0,
    prefix: PrefixOption = None,
    prefix_column: PrefixColumnOption = False,
    keep_unk: KeepUnkOption = False,
    dictionary: DictionaryOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    engine: EngineOption = "auto",
    verbose: VerboseOption = False,
) -> None:
    """Translate sentences, a file, or standard input with a trained model.

    Writes one line to stdout for each line it reads, in the same order; everything else goes to stderr.
    """
    show_logs()
    _refuse_contradictions(sentences, file, start_line, prefix, prefix_column, keep_unk, dictionary)
    found = find_exported(run, engine, checkpoint, ensemble) or find_run(run)
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
    lines = _Lines(sentences, file, start_line, prefix or "", prefix_column)
    with _together(device):
        translator = _load(found, checkpoint, device, precision, dictionary, ensemble, engine)
        if verbose:
            say(translator.described)
        is_numbered = n_best is not None
        find = partial(translator.n_best, num_best=n_best or 1, strategy=strategy, refuse_long=True)
        constraints = _constraints(min_length, no_repeat_ngram)
        search = partial(
            find, constraints=constraints, max_length=max_length, keep_unk=keep_unk, with_scores=is_numbered
        )
        unknown_words = UnknownWords(translator.reader, copies=translator.copies_words and not keep_unk)
        if prefix:
            _refuse_long_prefix(search, prefix)
        if lines.are_typed:
            Prompt(search, lines.read, _write, unknown_words, strategy, n_best, translator.precision).run()
        bad_lines = BadLines(on_error, lines.name)
        at_once = 2 if translator.engine.name == "ctranslate2" and not processes.are_several() else 1
        _translate_all(lines, search, bad_lines, unknown_words, at_once, is_numbered=is_numbered)
        if is_numbered and translator.precision != "float32":
            say(f"scores{in_precision(translator.precision)}")


@contextmanager
def _together(device: str) -> Iterator[None]:
    """Work with the processes that torchrun has started, of which only the first one writes."""
    if not processes.are_several():
        yield
        return
    from mt import distributed
    from mt.device import choose_device

    with ExitStack() as stack:
        stack.enter_context(distributed.connected(choose_device(device).type))
        if not processes.is_first():
            nowhere = stack.enter_context(
                Path(os.devnull).open("w", encoding="utf-8", errors="surrogateescape")
            )
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def _load(
    run: "RunDirectory | Path",
    checkpoint: str,
    device: str,
    precision: "PrecisionName",
    dictionary: Path | None,
    ensemble: list[Path] | None,
    engine: str,
) -> "Translator":
    from mt.inference.source_reader import read_dictionary

    read = None if dictionary is None else read_dictionary(dictionary)
    if isinstance(run, Path):
        return load_exported(run, device, precision, read)
    from mt.inference.translator import Translator

    return Translator.from_run(
        run,
        checkpoint=checkpoint,
        device=device,
        dictionary=read,
        others=find_ensemble(ensemble),
        precision=precision,
        engine=engine_name(engine),
    )


def _constraints(min_length: int, no_repeat_ngram: int) -> "Constraints":
    from mt.search.strategy import Constraints

    return Constraints(min_length, no_repeat_ngram)


def _refuse_long_prefix(search: Search, prefix: str) -> None:
    """Check that the prefix of all lines is not too long, because then each line would be a bad one."""
    try:
        search([""], prefixes=[prefix])
    except LinesError as error:
        reason = error.reasons[1].removeprefix("line 1 has ")
        raise ConfigError(f"--prefix gives each line {reason}") from error


def _translate_all(
    lines: "_Lines",
    search: Search,
    bad_lines: BadLines,
    unknown_words: UnknownWords,
    at_once: int,
    *,
    is_numbered: bool,
) -> None:
    """Translate and write block by block, then print the warnings, or what stopped it."""
    number = lines.first
    stopped_by: DataError | None = None
    try:
        with lines.bar() as bar:

            def translate_block(block: list[str], first_line: int, check: Callable[[], None]) -> Block:
                pairs, reasons = lines.read(block, first_line)
                advancing = partial(search, advance=bar.update, before_each_step=check)
                return bad_lines.translate(pairs, advancing, first_line=first_line, reasons=reasons)

            with closing(_in_order(translate_block, _agreed(lines.blocks()), number, at_once)) as blocks:
                for done in blocks:
                    _write(done.translations, number if is_numbered else None)
                    unknown_words.count(done.pairs, done.translations)
                    number += len(done.translations)
                    if done.stopped_by is not None:
                        how = "" if lines.sentences else f" {_how_to_go_on(number)}"
                        raise DataError(f"{done.stopped_by}{how}")
                    bad_lines.count(done)
    except DataError as error:
        stopped_by = error
    # Where the bar was, which is gone.
    for warning in (unknown_words.warning(), bad_lines.warning()):
        if warning is not None:
            say(f"warning: {warning}")
    if stopped_by is not None:
        raise stopped_by


def _in_order(
    translate: "Callable[[list[str], int, Callable[[], None]], Block]",
    blocks: Iterator[list[str]],
    number: int,
    at_once: int,
) -> Generator[Block]:
    """Translate blocks, ``at_once`` of them in threads if they have arrived, and yield them in order.

    By torch, a block shares its threads with no other, and with the other processes.
    """
    stopping = threading.Event()

    def check() -> None:
        if stopping.is_set():
            raise CancelledError

    if at_once == 1:
        for block in filter(None, blocks):
            yield translate(block, number, check)
            number += len(block)
        return
    begun: deque[Future[Block]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for block in chain(blocks, [[]]):
                if block:
                    begun.append(pool.submit(translate, block, number, check))
                    number += len(block)
                while begun and (not block or len(begun) == at_once):
                    # Python handles a signal that arrives just before a wait only when the wait is over.
                    if wait([begun[0]], 0.1).done:
                        yield begun.popleft().result()
        finally:
            # Leaving the pool waits for its threads. Without an error, they have nothing left to do.
            stopping.set()


def _agreed(blocks: Iterator[list[str]]) -> Iterator[list[str]]:
    """The blocks of the first process, in every process."""
    if not processes.are_several():
        return blocks
    from mt import distributed

    return distributed.broadcast_all(blocks)


def _refuse_contradictions(
    sentences: list[str] | None,
    file: Path | None,
    start_line: int,
    prefix: str | None,
    prefix_column: bool,
    keep_unk: bool,
    dictionary: Path | None,
) -> None:
    if sentences and file:
        raise DataError("give sentences or --file, not both.")
    refuse_run_as_sentence(sentences)
    if sentences and len(sentences) == 1 and _is_file(sentences[0]):
        raise DataError(
            f"{sentences[0]} is a file. To translate its lines: mt translate --file {sentences[0]}. "
            "To translate its name, give it on standard input."
        )
    if sentences and start_line > 1:
        raise ConfigError("--start-line is for lines of a file or of stdin: leave it out with sentences.")
    if prefix is not None and prefix_column:
        raise ConfigError("--prefix and --prefix-column are mutually exclusive: give one of them.")
    if prefix_column and sentences:
        raise ConfigError("--prefix-column is for lines of a file or of stdin: use --prefix with sentences.")
    if dictionary is not None and keep_unk:
        raise ConfigError(
            "--dictionary replaces unknown words, but --keep-unk keeps them: give one of the two."
        )


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # For example, too long for a file name.
        return False


class _Lines(NamedTuple):
    """The input: sentences, the lines of a file, or the lines of standard input."""

    sentences: list[str] | None
    file: Path | None
    first: int
    """The number of the first line to translate."""
    prefix: str
    """The prefix of every translation."""
    prefix_column: bool
    """Whether each line has the prefix of its translation after a tab."""

    @property
    def name(self) -> str:
        """The name of the input, for messages."""
        if self.sentences:
            return "the command line"
        return STDIN_NAME if self.file is None else str(self.file)

    @property
    def are_typed(self) -> bool:
        """Whether a prompt reads them, because input and output of a single process are on a terminal."""
        is_stdin = not self.sentences and self.file is None and self.first == 1
        return is_stdin and not processes.are_several() and os.isatty(STDIN) and sys.stdout.isatty()

    def bar(self) -> "tqdm[NoReturn] | ProgressLines":
        """A progress bar for a file, unless the translations themselves appear on the terminal."""
        is_needed = self.file is not None and not sys.stdout.isatty()
        total = count_lines(self.file) if is_needed else None
        left = None if total is None else max(0, total - self.first + 1)
        return progress_bar(left, unit="lines", description="translating", shown=is_needed)

    def blocks(self) -> Iterator[list[str]]:
        """Yield the lines in blocks, as they arrive."""
        if self.sentences:
            # A sentence that contains a line break is still one sentence.
            yield [" ".join(sentence.split()) for sentence in self.sentences]
        elif self.file is not None:
            yield from arriving(lines_of_file(self.file, first=self.first, keep_bad=True))
        else:
            invite_typing("Type a sentence and press Enter;")
            yield from arriving(lines_of_stdin(first=self.first, keep_bad=True))

    def read(self, lines: list[str], first_line: int) -> tuple[Pairs, dict[int, str]]:
        """Split lines into source and prefix; also return which lines are not text, and why."""
        pairs = []
        reasons: dict[int, str] = {}
        for number, line in enumerate(lines, first_line):
            source, _, prefix = line.partition("\t") if self.prefix_column else (line, "", self.prefix)
            pairs.append((source, prefix))
            if reason := why_not_text(line, self.name, number):
                reasons[number] = reason
        return pairs, reasons


def _how_to_go_on(line: int) -> str:
    """Say how to continue after translating has stopped at this line."""
    before = "There is no line before it" if line == 1 else "All lines before it are translated"
    return (
        f"{before}. Continue after it with --start-line {line + 1}, or do not stop at such lines with "
        "--on-error empty or --on-error copy."
    )


def _write(translations: "Sequence[Sequence[Translation]]", first_line: int | None) -> None:
    """Write the best translation of each line; with ``first_line``, all of them, numbered and scored."""
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
