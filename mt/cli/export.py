"""`mt export`: convert a trained model for another library, and verify that it translates the same there."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from typer import Argument, Option, echo

from mt.cli.logs import say, show_logs
from mt.cli.options import CheckpointOption, RunOption, find_run, installed_with
from mt.display import aligned


def export(
    folder: Annotated[Path, Argument(metavar="OUT", help="The folder to write, which must not exist.")],
    to: Annotated[Literal["ctranslate2", "transformers"], Option(help="The target library.")],
    run: RunOption = None,
    checkpoint: CheckpointOption = "best",
    precision: Annotated[
        Literal["float32", "bf16", "int8"],
        Option(help="The data type of the saved weights; int8 is for ctranslate2 only."),
    ] = "float32",
    data: Annotated[
        str | None, Option(help="Verify with this corpus's validation split. Default: what the run keeps.")
    ] = None,
) -> None:
    """Export a trained model to CTranslate2 or transformers, verified.

    Both models translate up to 200 validation sentences; unless they agree, nothing is written.

    The folder also gets the tokenizers, an example script that does not need mt, and a model card.
    """
    show_logs()
    directory = find_run(run)
    with installed_with("mt-from-scratch[transformers]" if to == "transformers" else to):
        from mt.export.export import agreement_rows, export_run, not_expressed

        record, agreements = export_run(
            directory, folder, to=to, checkpoint=checkpoint, precision=precision, data_path=data
        )
    for line in aligned(agreement_rows(agreements), num_texts=0):
        echo(line)
    for missing in not_expressed(record):
        say(f"warning: not in the exported model: {missing}.")
    echo(f"{folder}")
    if to == "ctranslate2":
        language = f" --to {quote(record.tgt)}" if record.languages else ""
        say(f"Translate with it:  mt translate --run {quote(str(folder))} --engine ctranslate2{language}")
