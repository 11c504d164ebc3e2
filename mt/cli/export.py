"""`mt export`: convert a trained model for another library, and verify that it translates the same there."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from mt.cli.logs import say, show_logs
from mt.cli.options import CheckpointOption, RunOption, find_run, installed_with
from mt.display import aligned, visible

if TYPE_CHECKING:
    from mt.run_directory import RunDirectory


def export(
    folder: Annotated[
        Path, Argument(metavar="OUT", help="The folder to write; an earlier export is replaced.")
    ],
    to: Annotated[Literal["ctranslate2", "transformers"], Option(help="The target library.")],
    run: RunOption = None,
    checkpoint: CheckpointOption = "best",
    precision: Annotated[
        Literal["float32", "bf16", "int8"],
        Option(help="The data type of the saved weights; int8 is for ctranslate2 only."),
    ] = "float32",
    data: Annotated[
        str | None, Option(help="Verify with the validation split of this corpus. Default: that of the run.")
    ] = None,
) -> None:
    """Export a trained model to CTranslate2 or transformers, verified.

    Both models translate up to 200 validation sentences; unless they agree, nothing is written.

    The folder also gets the tokenizers, an example script that does not need mt, and a model card.
    """
    show_logs()
    directory = find_run(run)
    with installed_with("mt-from-scratch[transformers]" if to == "transformers" else to):
        if to == "ctranslate2":
            from mt.export.ctranslate2_model import CTRANSLATE2

            library = CTRANSLATE2
        else:
            from mt.export.transformers_model import TRANSFORMERS

            library = TRANSFORMERS
    from mt.evaluation.test_set import load_evaluation_set
    from mt.export.export import agreement_rows, check_folder, export_model, not_expressed
    from mt.inference.loaded_model import load_model

    check_folder(folder)
    loaded = load_model(directory, checkpoint)
    is_converted = to == "ctranslate2" and precision == "float32" and data is None
    converted = _converted(directory, checkpoint) if is_converted else None
    sentences = load_evaluation_set(loaded.config, "validation", path=data, leave_out_empty=True)
    record, agreements = export_model(
        loaded,
        visible(directory.path.resolve().name),
        list(zip(sentences.sources, sentences.references, strict=True)),
        folder,
        library,
        precision,
        converted,
    )
    for line in aligned(agreement_rows(agreements), num_texts=0):
        echo(line)
    for missing in not_expressed(record):
        say(f"warning: not in the exported model: {missing}.")
    echo(f"{folder}")
    if to == "ctranslate2":
        say(f"Translate with it:  mt translate --run {quote(str(folder))} --engine ctranslate2")


def _converted(run: "RunDirectory", checkpoint: str) -> Path:
    """The folder of the fast engine of this checkpoint, which was verified when it was made."""
    from mt.errors import ExportError
    from mt.inference.engine.convert import convert
    from mt.inference.engine.folders import REFUSED

    folder = convert(run, checkpoint)
    if (folder / REFUSED).exists():
        raise ExportError((folder / REFUSED).read_text(encoding="utf-8"))
    return folder / "float32"
