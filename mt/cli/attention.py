"""`mt attention`: what the model attends to, as a page, a picture or word alignments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from mt.cli import options
from mt.cli.logs import print_input_hint, say
from mt.data.sources.text import STDIN_NAME, lines_of
from mt.display import counted
from mt.errors import DataError

Format = Literal["html", "png", "svg", "pharaoh"]
FORMATS: dict[str, Format] = {".png": "png", ".svg": "svg"}


def attention(
    sentences: options.SentencesArgument = None,
    run: options.RunOption = None,
    to: options.ToOption = None,
    file: options.FileOption = None,
    target_column: Annotated[
        bool, Option(help="Read lines of source<TAB>translation, not the model's own.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(help="The file to write. Default: attention.html, .png or .svg; stdout for pharaoh."),
    ] = None,
    format: Annotated[
        Format | None,
        Option(
            help="A page, a picture, or i-j pairs of aligned words (pharaoh). "
            "Default: from the extension of --out, or html."
        ),
    ] = None,
    layer: Annotated[
        int | None, Option(min=1, help="The layer of the alignment or picture. Default: the one that aligns.")
    ] = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Show what the model attends to while it translates: every layer and head, and the word alignment.

    Writes a web page that needs no server, or with --format a picture or the alignments.
    """
    made = format or FORMATS.get(out.suffix if out else "", "html")
    if made in ("png", "svg"):
        with options.installed_with("mt-from-scratch[pictures]"):
            import matplotlib  # noqa: F401
    if out is None and made != "pharaoh":
        out = Path(f"attention.{made}")
    directory = options.find_run(run)
    options.check_output(out)
    pairs = _read(sentences, file, target_column)
    from mt.attention_maps.page import MOST_SENTENCES

    num_sentences = len(pairs[0])
    most = {"png": 1, "svg": 1, "html": MOST_SENTENCES}.get(made, num_sentences)
    if num_sentences > most:
        raise DataError(
            f"--format {made} shows at most {counted(most, 'sentence')}, not {num_sentences:,}: give fewer, "
            "or use --format pharaoh."
        )
    from mt.attention_maps.alignment import AttentionMaps, aligning_heads, as_pharaoh, attention_line_by_line
    from mt.inference.model_translator import ModelTranslator

    translator = ModelTranslator.from_run(directory, checkpoint=checkpoint, device=device, tgt=to)
    heads = aligning_heads(translator, None if layer is None else layer - 1)
    say(f"alignment: {heads}")
    if made == "pharaoh":
        options.write_output(as_pharaoh(heads, attention_line_by_line(translator, *pairs)), out)
        return
    from mt.attention_maps.page import attention_page, check_shows_something

    maps = AttentionMaps(translator.attention(*pairs), heads)
    check_shows_something(maps)
    if made == "html":
        options.write_output([attention_page(maps, f"{directory.name}, {translator.facts.checkpoint}")], out)
    else:
        from mt.attention_maps.picture import picture

        options.write_output(picture(maps, made), out)


def _read(
    sentences: list[str] | None, file: Path | None, target_column: bool
) -> tuple[Sequence[str], Sequence[str] | None]:
    """The sentences, of the command line, a file or standard input, and the translations that are given."""
    options.check_sentences(sentences, file)
    options.check_needs("lines, not sentences", not sentences, target_column=target_column)
    if sentences:
        return options.on_one_line(sentences), None
    if file is None:
        print_input_hint("Type a sentence and press Enter;")
    lines = list(lines_of(file, "pairs" if target_column else "sentences"))
    if not target_column:
        return lines, None
    name = str(file or STDIN_NAME)
    pairs = [options.two_columns(line, name, number) for number, line in enumerate(lines, start=1)]
    return [source for source, _ in pairs], [translation for _, translation in pairs]
