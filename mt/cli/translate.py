"""`mt translate`: translate sentences, one line out for one line in."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, Literal

from typer import Option

from mt import processes
from mt.cli import options
from mt.cli.lines import Block, Input, LineTranslator, read_dictionary
from mt.cli.logs import say
from mt.cli.tables import JsonFlag
from mt.display import in_precision
from mt.errors import ConfigError, DataError, MtError
from mt.files import new_file
from mt.inference.kept import DEFAULT
from mt.inference.markup.pieces import Format
from mt.search.strategy import LARGEST_SEED, Constraints, Sampling

_TEXTS_AT_ONCE = 1000
sampling_option = partial(Option, rich_help_panel="Sampling")
output_option = partial(Option, rich_help_panel="Constraints and unknown words")


def translate(
    sentences: options.SentencesArgument = None,
    run: options.RunOption = None,
    to: options.ToOption = None,
    ensemble: options.EnsembleOption = None,
    file: options.FileOption = None,
    pairs: Annotated[
        Path | None,
        options.input_option(metavar="OUT.jsonl", help="Write pairs there: lines of --file, translations."),
    ] = None,
    format: Annotated[
        Format, options.input_option(help="What is translated: lines of text, or one page of markup.")
    ] = "text",
    on_error: Annotated[
        Literal["stop", "empty"] | None,
        options.input_option(
            help="At a line that cannot be translated: stop (default), or write an empty one. If stop is "
            "given, also at a line of which something is lost that must stay."
        ),
    ] = None,
    beam: options.BeamOption = 1,
    length_penalty: options.LengthPenaltyOption = 1.0,
    length_normalization: options.LengthNormalizationOption = "gnmt",
    n_best: Annotated[
        int | None,
        options.beam_option(
            min=1, metavar="N", help="Write the N best: line number, score, log-probability and text."
        ),
    ] = None,
    sample: Annotated[
        bool, sampling_option(help="Sample at random instead of searching for the best.")
    ] = False,
    temperature: Annotated[
        float, sampling_option(min=0.01, max=100.0, help="Divides the logits; below 1, likely tokens gain.")
    ] = 1.0,
    top_k: Annotated[
        int, sampling_option(min=0, metavar="K", help="Sample from the K most probable tokens; 0 is all.")
    ] = 0,
    top_p: Annotated[
        float, sampling_option(min=0.001, max=1.0, help="Sample from the likeliest tokens with this total.")
    ] = 1.0,
    seed: Annotated[
        int, sampling_option(min=0, max=LARGEST_SEED, help="The same seed gives the same translations.")
    ] = 1,
    min_length: Annotated[int, output_option(min=0, help="The fewest tokens for each sentence.")] = 0,
    max_length: Annotated[
        int | None, output_option(min=1, help="The most tokens for each sentence; the rest is cut.")
    ] = None,
    no_repeat_ngram: Annotated[
        int, output_option(min=0, metavar="N", help="Never repeat N tokens in a row; 0 allows repetition.")
    ] = 0,
    prefix: Annotated[str, output_option(help="Begin each translation with this text.")] = "",
    keep_unk: Annotated[
        bool, output_option(help="Allow <unk> for words that the model does not know.")
    ] = False,
    as_is: Annotated[
        bool,
        output_option(help="Copy unknown words also where one in other capitals or nearly is known."),
    ] = False,
    keep: Annotated[
        list[str] | None,
        output_option(
            metavar="PATTERN", help="Leave what matches this regular expression as it is; may be repeated."
        ),
    ] = None,
    keep_none: Annotated[
        bool,
        output_option(help="Translate {name}, %s, $NAME, <0>, addresses, paths and #tags, too."),
    ] = False,
    dictionary: Annotated[
        Path | None, output_option(help="Translate words as in this file of source<TAB>target.")
    ] = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    engine: options.EngineOption = "auto",
    verbose: options.VerboseOption = False,
    json: JsonFlag = False,
    alignment: Annotated[bool, Option(help="With --json: also align the words of both sides.")] = False,
) -> None:
    """Translate sentences, a file, or standard input with a trained model.

    Writes one line to stdout for each line it reads, in the same order; everything else goes to stderr. With
    --format html or markdown, what it reads is one page, whose tags come out where they belong.
    """
    if processes.ARE_SEVERAL:
        raise ConfigError("mt translate uses all cores in one process: start it without torchrun.")
    options.check_sentences(sentences, file)
    options.check_excludes("--dictionary", dictionary, keep_unk=keep_unk)
    options.check_excludes("--sample", sample, beam=beam > 1, n_best=n_best)
    options.check_excludes("--pairs", pairs, n_best=n_best, json=json)
    options.check_excludes("--format", format != "text", n_best=n_best, pairs=pairs, prefix=prefix, json=json)
    options.check_needs("--json", json, alignment=alignment)
    options.check_needs("lines to translate: add --file FILE", file is not None, pairs=pairs)
    drawn = {"temperature": temperature != 1.0, "top_k": top_k, "top_p": top_p != 1.0, "seed": seed != 1}
    options.check_needs("sampling: add --sample", sample, **drawn)
    options.check_needs(
        f"a beam of at least that size: add --beam {n_best}", beam >= (n_best or 1), n_best=n_best
    )
    strategy = options.choose_beam(beam, length_penalty, length_normalization)
    patterns = [*(keep or []), *(() if keep_none or keep_unk else DEFAULT)]
    words = None if dictionary is None else read_dictionary(dictionary)
    translator = options.load_translator(
        run or options.find_run_or_demo(),
        checkpoint,
        device,
        precision,
        engine,
        ensemble=ensemble,
        dictionary=words,
        as_is=as_is,
        keep=patterns,
    ).into(to)
    if verbose:
        say(translator.described)
    source = Input(sentences, file)
    search = {
        "num_best": n_best or 1,
        "with_scores": json or n_best is not None,
        "strategy": Sampling(temperature, seed, top_k, top_p) if sample else strategy,
        "constraints": Constraints(min_length, no_repeat_ngram),
        "max_length": max_length,
        "keep_unk": keep_unk,
    }
    lines = LineTranslator(translator, search, source.name, prefix, on_error, json, alignment)
    at_once = 2 if translator.engine.name == "ctranslate2" else 1
    if format != "text":
        _translate_page(source, lines, format, at_once)
        return
    if source.is_typed:
        _prompt(lines)
        return
    with nullcontext() if pairs is None else new_file(pairs) as out:
        _translate_all(source, lines, at_once, out)
    if n_best is not None and translator.engine.precision != "float32":
        say(f"scores{in_precision(translator.engine.precision)}")


def _prompt(lines: LineTranslator) -> None:
    """Translate what is typed, line by line; an error in one is reported, and the next one is read."""
    say("Type a sentence and press Enter. Ctrl-C discards it, or stops its translation. Ctrl-D ends.")
    with suppress(ImportError):
        import readline  # noqa: F401 - input() then edits the line and recalls earlier ones.
    number = 0
    while True:
        try:
            # Text that is pasted may have several lines.
            for line in filter(str.strip, input("> ").split("\n")):
                number += 1
                try:
                    block = lines.translate([line], number)
                except MtError as error:
                    say(f"mt: {error}")
                    continue
                if block.reasons:
                    say(f"mt: {block.reasons[number]}")
                    continue
                lines.write(block, number)
                lines.count(block)
                for warning in lines.warnings():
                    say(f"warning: {warning}")
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return


def _translate_page(source: Input, lines: LineTranslator, format: Format, at_once: int) -> None:
    """Translate what is read as one page, or each argument as one, and write it."""
    from mt.inference.markup.documents import Documents

    pages = source.sentences or [source.page()]
    documents = Documents(lines.translator, pages, format)
    lines.options["with_attention"] = True
    starts = range(0, len(documents.texts), _TEXTS_AT_ONCE)
    blocks = (documents.texts[start : start + _TEXTS_AT_ONCE] for start in starts)
    done: list[Block] = []
    with source.progress(len(documents.texts), "texts") as advance:
        for block in _in_order(partial(lines.translate, advance=advance), blocks, at_once):
            if block.reasons and lines.on_error != "empty":
                raise DataError(block.reasons[min(block.reasons)])
            done.append(block)
            lines.count(block)
    written = documents.translated([best for block in done for best, *_ in block.translations])
    sys.stdout.write("\n".join(written) + ("\n" if source.sentences else ""))
    for warning in lines.warnings():
        say(f"warning: {warning}")


def _translate_all(source: Input, lines: LineTranslator, at_once: int, pairs: IO[bytes] | None) -> None:
    """Translate and write block by block, then print the warnings, or what stopped it."""
    number = 1
    try:
        with source.progress() as advance:
            translate_block = partial(lines.translate, advance=advance)
            with closing(_in_order(translate_block, source.blocks(), at_once)) as blocks:
                for block in blocks:
                    lines.write(block, number, pairs)
                    number += len(block.translations)
                    lines.count(block)
                    if block.reasons and lines.on_error != "empty":
                        reason = block.reasons[number]
                        if not source.sentences:
                            reason += (
                                f" All lines before it are translated. Continue after it with tail -n "
                                f"+{number + 1}, or do not stop at such lines with --on-error empty."
                            )
                        raise DataError(reason)
    finally:
        # Where the bar was, which is gone.
        for warning in lines.warnings():
            say(f"warning: {warning}")


def _in_order(
    translate: Callable[[list[str], int, Callable[[], None]], Block],
    blocks: Iterator[list[str]],
    at_once: int,
) -> Generator[Block]:
    """Translate blocks, ``at_once`` of them in threads if they have arrived, and yield them in order."""
    number = 1
    stopping = threading.Event()

    def check() -> None:
        if stopping.is_set():
            raise CancelledError

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
