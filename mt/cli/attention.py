"""`mt attention`: what the model attends to, as a page, a picture, word alignments or raw weights."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from mt.cli.extras import missing_package
from mt.cli.logs import invite_typing, say, show_logs
from mt.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    FileOption,
    LengthNormalizationOption,
    LengthPenaltyOption,
    RunOption,
    choose_beam,
    find_run,
    refuse_run_as_sentence,
)
from mt.cli.outputs import refuse_missing_folder, refuse_overwriting
from mt.display import counted
from mt.errors import ConfigError, DataError
from mt.inference.arriving_lines import STDIN_NAME, lines_of_file, lines_of_stdin

if TYPE_CHECKING:
    from mt.attention_maps.picture import Heads
    from mt.inference.alignment_layer import AlignmentLayer

Format = Literal["html", "png", "svg", "json", "pharaoh"]
_PICTURE = "Pictures"


SentencesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="SENTENCE", help="What to translate. Default: the lines of stdin."),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT", help="Use this translation instead of the model's own; give one for each sentence."
    ),
]
TargetColumnOption = Annotated[
    bool,
    typer.Option("--target-column", help="Read lines of source<TAB>translation, and use that translation."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file to write. Default: attention.html, .png or .svg; stdout for json and pharaoh.",
    ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        help="A web page, a picture, all weights (json), or i-j pairs of aligned words (pharaoh). "
        "Default: from the extension of --out, or html."
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The decoder layer used for the alignment, or the layer of a picture. Default: the one that "
        "aligns best.",
    ),
]
KindOption = Annotated[
    Literal["cross", "encoder", "decoder"],
    typer.Option(
        help="Cross-attention, or self-attention of the encoder or the decoder.", rich_help_panel=_PICTURE
    ),
]
HeadOption = Annotated[
    str,
    typer.Option(
        metavar="N|mean|all", help="One head, the mean of all heads, or every head.", rich_help_panel=_PICTURE
    ),
]


def attention(
    sentences: SentencesArgument = None,
    run: RunOption = None,
    file: FileOption = None,
    target: TargetOption = None,
    target_column: TargetColumnOption = False,
    out: OutOption = None,
    format: FormatOption = None,
    layer: LayerOption = None,
    kind: KindOption = "cross",
    head: HeadOption = "mean",
    beam: BeamOption = 1,
    length_penalty: LengthPenaltyOption = 1.0,
    length_normalization: LengthNormalizationOption = "gnmt",
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Show what the model attends to while it translates: every layer and head, and the word alignment.

    Writes a web page that needs no server, or with --format a picture, the weights or the alignments.
    """
    show_logs()
    made = _format(format, out)
    heads = _heads(head)
    if made not in ("png", "svg") and (kind, heads) != ("cross", "mean"):
        raise ConfigError("--kind and --head are for pictures: add --format svg or --format png.")
    if made in ("png", "svg"):
        _refuse_missing_extra()
    place = _place(out, made)
    refuse_missing_folder(place)
    refuse_overwriting(place, file)
    strategy = choose_beam(beam, length_penalty, length_normalization)
    pairs = _read(sentences, file, target, target_column)
    found = find_run(run)
    refuse_overwriting(place, found.path)
    _refuse_too_many(made, len(pairs.sources))
    from mt.attention_maps.alignment import attention_line_by_line, attention_maps
    from mt.device import choose_device
    from mt.inference.loaded_model import load_model
    from mt.inference.model_translator import ModelTranslator

    chosen = choose_device(device)
    loaded = load_model(found, checkpoint)
    translator = ModelTranslator.from_loaded(loaded, device=chosen)
    index = None if layer is None else layer - 1
    if made == "json" or made == "pharaoh":
        from mt.attention_maps.text_formats import as_json, as_pharaoh

        aligning, recorded = attention_line_by_line(translator, *pairs, strategy=strategy, layer=index)
        say(_how_aligned(aligning))
        _write((as_json if made == "json" else as_pharaoh)(aligning, recorded), place)
        return
    maps = attention_maps(translator, *pairs, strategy=strategy, layer=index if kind == "cross" else None)
    say(_how_aligned(maps.layer))
    if made == "html":
        from mt.attention_maps.page import attention_page, refuse_nothing_to_show

        refuse_nothing_to_show(maps)
        _write([attention_page(maps, f"{found.name}, {loaded.checkpoint.name}")], place)
    else:
        from mt.attention_maps.picture import picture

        _write(picture(maps, kind, heads, layer=index, format=made), place)


def _format(given: Format | None, out: Path | None) -> Format:
    if given is not None:
        return given
    endings: dict[str, Format] = {".png": "png", ".svg": "svg", ".json": "json"}
    return endings.get(out.suffix.lower() if out else "", "html")


def _place(out: Path | None, made: Format) -> Path | None:
    """The file to write; None for standard output."""
    return Path(f"attention.{made}") if out is None and made not in ("json", "pharaoh") else out


class _Pairs(NamedTuple):
    """The sentences, and their translations if those are given."""

    sources: Sequence[str]
    targets: Sequence[str] | None


def _read(
    sentences: list[str] | None, file: Path | None, target: list[str] | None, target_column: bool
) -> _Pairs:
    """The input: sentences, the lines of a file, or the lines of standard input."""
    if sentences and file:
        raise DataError("give sentences or --file, not both.")
    refuse_run_as_sentence(sentences)
    if target and target_column:
        raise ConfigError("--target and --target-column are mutually exclusive: give one of them.")
    if sentences:
        if target_column:
            raise ConfigError(
                "--target-column is for lines of a file or of stdin: use --target with sentences."
            )
        if target and len(target) != len(sentences):
            raise DataError(
                f"there are {counted(len(sentences), 'sentence')} and {counted(len(target), 'translation')}: "
                "give --target once for each sentence, in the same order."
            )
        # A sentence that contains a line break is still one sentence.
        return _Pairs([" ".join(each.split()) for each in sentences], target)
    if target:
        raise ConfigError("--target is for sentences on the command line: use --target-column with lines.")
    name = STDIN_NAME if file is None else str(file)
    if file is None:
        invite_typing("Type a sentence and press Enter;")
    lines = list(lines_of_stdin() if file is None else lines_of_file(file))
    if not target_column:
        return _Pairs(lines, None)
    columns = [line.split("\t") for line in lines]
    for number, parts in enumerate(columns, start=1):
        if len(parts) != 2:
            raise DataError(
                f"{name}, line {number} has {len(parts) - 1} tabs, but must have exactly one, between a "
                "sentence and its translation."
            )
    return _Pairs([source for source, _ in columns], [translation for _, translation in columns])


def _refuse_too_many(made: Format, num_sentences: int) -> None:
    if made in ("png", "svg") and num_sentences != 1:
        raise DataError(f"a picture shows one sentence, not {num_sentences}: give one, or use --format html.")
    if made == "html":
        from mt.attention_maps.page import MOST_SENTENCES

        if num_sentences > MOST_SENTENCES:
            raise DataError(
                f"a page shows at most {MOST_SENTENCES} sentences, but there are {num_sentences:,}: give "
                "fewer, or use --format json or pharaoh."
            )


def _heads(text: str) -> "Heads":
    """The heads of a picture: ``mean``, ``all``, or a number, counted from 1."""
    named: dict[str, Heads] = {"mean": "mean", "all": "all"}
    if text in named:
        return named[text]
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise ConfigError(f"--head {text}: give the number of a head, such as 1, or mean or all.")
    return int(text[:9]) - 1


def _refuse_missing_extra() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise missing_package("matplotlib", "pictures")


def _how_aligned(layer: "AlignmentLayer") -> str:
    if layer.agreement is None:
        return f"alignment: decoder layer {layer.index + 1}, mean of the heads"
    return (
        f"alignment: decoder layer {layer.index + 1}, mean of the heads; it agrees with what the predictions "
        f"depend on for {layer.agreement:.0%} of the tokens"
    )


def _write(content: bytes | Iterable[str], place: Path | None) -> None:
    if place is None:
        assert not isinstance(content, bytes)
        sys.stdout.writelines(content)
        sys.stdout.flush()
        return
    from mt.files import write_atomically

    write_atomically(place, content)
    say(f"Wrote {place}.")
