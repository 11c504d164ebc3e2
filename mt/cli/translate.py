"""`mt translate`: sentences in, translations out, one line for one line."""

import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mt.cli.logs import show_logs
from mt.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    LengthPenaltyOption,
    RunOption,
    find_run,
)
from mt.errors import ConfigError, DataError

MOST_LINES_AT_ONCE = 2000
STDIN = 0


def translate(
    sentences: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE", help="What to translate. Default: stdin.")
    ] = None,
    run: RunOption = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Translate the lines of a UTF-8 file.")
    ] = None,
    beam: BeamOption = 1,
    length_penalty: LengthPenaltyOption = 1.0,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw a translation instead of taking the likeliest words.")
    ] = False,
    temperature: Annotated[
        float,
        typer.Option(min=0.01, max=100.0, help="With --sample: below 1 more careful, above 1 more daring."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="With --sample: the same seed draws the same.")] = 1,
    keep_unk: Annotated[
        bool, typer.Option("--keep-unk", help="Show where the model would write a word it does not know.")
    ] = False,
    dictionary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lines of source<TAB>target: how these words are to be translated."),
    ] = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Translate sentences, a file, or standard input: one line out for one line in, in order, on stdout."""
    show_logs()
    if sentences and file:
        raise DataError("give sentences or --file, not both.")
    if sample and beam > 1:
        raise ConfigError("--sample draws and --beam searches: give one of the two.")
    if not sample and (temperature, seed) != (1.0, 1):
        raise ConfigError("--temperature and --seed are for drawing: add --sample.")
    found = find_run(run)
    from mt.device import choose_device
    from mt.pipeline.carried_words import read_dictionary
    from mt.pipeline.translator import Beam, Sampling, Translator

    translator = Translator.from_run(
        found,
        checkpoint=checkpoint,
        device=choose_device(device),
        dictionary=None if dictionary is None else read_dictionary(dictionary),
    )
    way = Sampling(temperature, seed) if sample else Beam(beam, length_penalty) if beam > 1 else None
    number_of_first = 1
    for lines in _blocks(sentences, file):
        translations = translator.translate(
            lines,
            way=way,
            keep_unk=keep_unk,
            refuse_long=True,
            first_line=number_of_first,
            show_progress=file is not None,
        )
        number_of_first += len(lines)
        # Bytes, because what goes in is UTF-8 and so is what comes out, whatever the locale says.
        sys.stdout.buffer.write("".join(line + "\n" for line in translations).encode())
        sys.stdout.flush()


def _blocks(sentences: list[str] | None, file: Path | None) -> Iterator[list[str]]:
    """The lines to translate, as many at a time as have arrived."""
    if sentences:
        # A sentence with a line break in it is still one sentence.
        yield [" ".join(sentence.split()) for sentence in sentences]
    elif file is not None:
        yield from _arriving(_lines(file, str(file)))
    else:
        if os.isatty(STDIN):
            typer.echo("Type a sentence and press Enter; Ctrl-D ends.", err=True)
        yield from _arriving(_lines(STDIN, "standard input"))


def _lines(source: Path | int, name: str) -> Iterator[str]:
    """Lines end at a line feed and nowhere else, so that there are as many out as `wc -l` counts."""
    try:
        # The reading thread alone opens and closes: to close, or to end Python, while it waits for input
        # would wait for it, and sys.stdin would make Python abort.
        with open(source, "rb", closefd=source != STDIN) as stream:
            for number, raw in enumerate(stream, start=1):
                yield _text(raw, name, number).rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}.") from error


def _text(raw: bytes, name: str, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}, line {number} is not UTF-8 ({error.reason} at byte {error.start}). "
            "Convert it, for example with iconv -f latin1 -t utf-8."
        ) from error


def _arriving(lines: Iterator[str]) -> Iterator[list[str]]:
    """Read ahead in a thread; give what has arrived, be it one line that someone types or a whole file."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=10 * MOST_LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:
            # Raised again where it can be answered, once all lines before it are translated.
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        block: list[str] = []
        item = arrived.get()
        while isinstance(item, str):
            block.append(item)
            if len(block) == MOST_LINES_AT_ONCE or arrived.empty():
                break
            item = arrived.get()
        if block:
            yield block
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return
