"""`mt attention`: what the model attends to, as a page, a picture, word alignments or raw weights."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from typer import Argument, Option

from mt.cli import options
from mt.cli.logs import invite_typing, say, show_logs
from mt.display import counted
from mt.errors import ConfigError, DataError
from mt.inference.arriving_lines import STDIN_NAME, lines_of_file, lines_of_stdin

if TYPE_CHECKING:
    from mt.attention_maps.picture import Heads
    from mt.inference.alignment_layer import AlignmentLayer

Format = Literal["html", "png", "svg", "json", "pharaoh"]
FORMATS: dict[str, Format] = {".png": "png", ".svg": "svg", ".json": "json"}
picture_option = partial(Option, rich_help_panel="Pictures")


def attention(
    sentences: Annotated[
        list[str] | None, Argument(metavar="SENTENCE", help="The sentences. Default: the lines of stdin.")
    ] = None,
    run: options.RunOption = None,
    file: options.FileOption = None,
    target: Annotated[
        list[str] | None, Option(help="Use this translation, not the model's; one for each sentence.")
    ] = None,
    target_column: Annotated[
        bool, Option("--target-column", help="Read lines of source<TAB>translation, and use these.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(help="The file to write. Default: attention.html, .png, .svg; stdout for json, pharaoh."),
    ] = None,
    format: Annotated[
        Format | None,
        Option(
            help="A page, a picture, all weights (json), or i-j pairs of aligned words (pharaoh). "
            "Default: from the extension of --out, or html."
        ),
    ] = None,
    layer: Annotated[
        int | None, Option(min=1, help="The layer of the alignment or picture. Default: the best one.")
    ] = None,
    kind: Annotated[
        Literal["cross", "encoder", "decoder"],
        picture_option(help="Cross-attention, or self-attention of the encoder or the decoder."),
    ] = "cross",
    head: Annotated[
        str, picture_option(metavar="N|mean|all", help="One head, the mean of all heads, or every head.")
    ] = "mean",
    beam: options.BeamOption = 1,
    length_penalty: options.LengthPenaltyOption = 1.0,
    length_normalization: options.LengthNormalizationOption = "gnmt",
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Show what the model attends to while it translates: every layer and head, and the word alignment.

    Writes a web page that needs no server, or with --format a picture, the weights or the alignments.
    """
    show_logs()
    made = format or FORMATS.get(out.suffix if out else "", "html")
    is_picture = made in ("png", "svg")
    options.check_needs("a picture: add --format svg", is_picture, kind=kind != "cross", head=head != "mean")
    if is_picture:
        with options.installed_with("mt-from-scratch[pictures]"):
            import matplotlib  # noqa: F401
    heads = _heads(head)
    if out is None and made not in ("json", "pharaoh"):
        out = Path(f"attention.{made}")
    strategy = options.choose_beam(beam, length_penalty, length_normalization)
    found = options.find_run(run)
    options.check_output(out, file)
    pairs = _read(sentences, file, target, target_column)
    _check_number(made, len(pairs[0]))
    from mt.attention_maps.alignment import attention_line_by_line, attention_maps
    from mt.inference.model_translator import ModelTranslator

    translator = ModelTranslator.from_run(found, checkpoint=checkpoint, device=device)
    index = None if layer is None else layer - 1
    if made == "json" or made == "pharaoh":
        from mt.attention_maps.text_formats import as_json, as_pharaoh

        aligning, recorded = attention_line_by_line(translator, *pairs, strategy=strategy, layer=index)
        say(_how_aligned(aligning))
        options.write_output((as_json if made == "json" else as_pharaoh)(aligning, recorded), out)
        return
    from mt.attention_maps.page import attention_page, check_shows_something

    maps = attention_maps(translator, *pairs, strategy=strategy, layer=index if kind == "cross" else None)
    say(_how_aligned(maps.layer))
    check_shows_something(maps)
    if made == "html":
        options.write_output([attention_page(maps, f"{found.name}, {translator.checkpoint}")], out)
    else:
        from mt.attention_maps.picture import picture

        options.write_output(picture(maps, kind, heads, layer=index, format=made), out)


def _read(
    sentences: list[str] | None, file: Path | None, targets: list[str] | None, target_column: bool
) -> tuple[Sequence[str], Sequence[str] | None]:
    """The sentences, of the command line, a file or standard input, and the translations that are given."""
    options.check_sentences(sentences, file)
    options.check_at_most_one(target=targets, target_column=target_column)
    options.check_needs("lines, not sentences: use --target", not sentences, target_column=target_column)
    options.check_needs("sentences on the command line: use --target-column", bool(sentences), target=targets)
    if sentences:
        if targets and len(targets) != len(sentences):
            raise DataError(
                f"--target was given {len(targets)} times for {len(sentences)} sentences: give it once for "
                "each sentence, in the same order."
            )
        return options.on_one_line(sentences), targets
    if file is None:
        invite_typing("Type a sentence and press Enter;")
    lines = list(lines_of_stdin() if file is None else lines_of_file(file))
    if not target_column:
        return lines, None
    name = str(file or STDIN_NAME)
    pairs = [options.two_columns(line, name, number) for number, line in enumerate(lines, start=1)]
    return [source for source, _ in pairs], [translation for _, translation in pairs]


def _check_number(made: Format, num_sentences: int) -> None:
    from mt.attention_maps.page import MOST_SENTENCES

    most = {"png": 1, "svg": 1, "html": MOST_SENTENCES}.get(made, num_sentences)
    if num_sentences > most:
        raise DataError(
            f"--format {made} shows at most {counted(most, 'sentence')}, not {num_sentences:,}: give fewer, "
            "or use --format json or pharaoh."
        )


def _heads(text: str) -> "Heads":
    """The heads of a picture: ``mean``, ``all``, or a number, counted from 1."""
    if text in ("mean", "all"):
        return cast("Heads", text)
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"--head {text}: give the number of a head, such as 1, or mean or all.")
    return int(text) - 1


def _how_aligned(layer: "AlignmentLayer") -> str:
    text = f"alignment: decoder layer {layer.index + 1}, mean of the heads"
    if layer.agreement is None:
        return text
    return f"{text}; it agrees with what the predictions depend on for {layer.agreement:.0%} of the tokens"
