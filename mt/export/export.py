"""`mt export`: write a folder, verify it as it is on disk, describe it, put it in place."""

import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

from mt.display import markdown_table, markdown_text, visible
from mt.errors import ConfigError, EngineError
from mt.evaluation.test_set import load_evaluation_set
from mt.files import make_folder, new_folder
from mt.inference.engine.convert import write_model
from mt.inference.exported_folder import ExportPrecision, ExportRecord, Target, write_export_record
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.verify import Agreement, Pairs, compare_scores, verification_pairs, verify
from mt.run_directory import RunDirectory, as_run

LOG = logging.getLogger(__name__)

EXAMPLE = "example.py"
CARD = "README.md"
_CARD = """\
---
library_name: {target}
pipeline_tag: translation
---

# {run}: {title}

A Transformer trained with mt {mt_version}, exported to {target} in {precision} from checkpoint {checkpoint} \
of the run {run}. It reads and writes at most {max_length} tokens.

## Use

`example.py` translates the lines of its standard input without mt; its {arguments}:

```bash
python example.py 5{to} < lines.txt
```
{first_token}
## Verification

Validation sentences{of_direction} were translated by mt and by the model in this folder.

{agreements}

## Differences from mt

- It has one length limit for a whole call, mt one for each sentence, about twice its source. At the limit \
it ranks unfinished translations together with finished ones; mt uses an unfinished one only if none is \
finished.
- It ranks a beam by mean log-probability, as `mt translate` does with `--length-normalization mean`.
{differences}
"""
_FIRST_TOKEN = """
The model reads the language to translate into as the first token of a sentence, such as `<to:{0}>`. The \
program puts it in as an entry of the vocabulary; the same characters in a text are text.
"""


def export_run(
    run: str | Path | RunDirectory,
    folder: str | Path,
    *,
    to: Target,
    checkpoint: str = "best",
    precision: ExportPrecision = "float32",
    data_path: str | None = None,
) -> tuple[ExportRecord, Sequence[Agreement]]:
    """Export a model for another library, verified by translating validation sentences with both.

    Args:
        run: The run directory.
        folder: The folder to write, which must not exist.
        to: ``ctranslate2`` or ``transformers``; the package of this name must be installed.
        checkpoint: best, latest, or a checkpoint's name.
        precision: That of the saved weights; int8 is for CTranslate2 only.
        data_path: Verify with the validation split of this corpus instead of what the run keeps of its own.

    Returns:
        The record of the folder, and how the translations of both compare.

    Raises:
        MtError: If the run or the folder cannot be used, or the models do not translate alike.
    """
    run = as_run(run).require()
    folder = Path(folder)
    library = import_module(f"mt.export.{to}_model")
    if folder.exists():
        raise ConfigError(f"{folder} exists, and nothing is replaced: name another folder, or remove it.")
    loaded = load_model(run, checkpoint)
    pairs = verification_pairs(run)
    if data_path is not None:
        other = load_evaluation_set(loaded.config, "validation", path=data_path)
        pairs = list(zip(other.sources, other.references, strict=True))
    return export_model(loaded, visible(run.path.resolve().name), pairs, folder, library, precision)


@torch.inference_mode()
def export_model(
    loaded: LoadedModel,
    run_name: str,
    pairs: Pairs,
    folder: Path,
    library: ModuleType,
    precision: ExportPrecision = "float32",
) -> tuple[ExportRecord, Sequence[Agreement]]:
    """Export a model, whole or not at all; return its verification.

    ``library`` is one of the modules ``mt.export.*_model``. It can ``write`` a model, which is on the CPU and
    in float32, in its ``PRECISIONS``, and ``load`` it. It has a ``NAME``; an ``EXAMPLE``, which is a program
    that translates without mt; ``DIFFERENCES`` from mt for the model card; and the decoding strategies with
    which its translations are ``EXACT``, but for near-ties.
    """
    if precision not in library.PRECISIONS:
        choices = " or ".join(library.PRECISIONS)
        raise ConfigError(f"a model for {library.NAME} is saved in {choices}, not in {precision}.")
    ids = loaded.src_tokenizer.encode_batch([src for src, _ in pairs])
    most = loaded.config.data.max_length - len(loaded.src_tokenizer.beginning(loaded.facts.tgt))
    # Longer ones are split by mt alone.
    short = [pair for pair, row in zip(pairs, ids, strict=True) if len(row) < most]
    if not short:
        raise EngineError(
            "there are no validation sentences to verify the export with: name a corpus with --data PATH."
        )
    target = folder.resolve()
    make_folder(target.parent)
    with new_folder(target, replaces=False) as partial:
        write_model(library.write, loaded, partial, precision)
        record = write_export_record(partial, loaded, library.NAME, run_name, precision)
        translate, score = library.load(partial)
        LOG.info("verifying with validation sentences")
        if precision == "float32":
            compare_scores(loaded, score)
        exact = library.EXACT if precision == "float32" else ()
        agreements = verify(loaded, translate, short, exact=exact)
        (partial / EXAMPLE).write_text(library.EXAMPLE, encoding="utf-8")
        (partial / CARD).write_text(_model_card(record, library.DIFFERENCES, agreements), encoding="utf-8")
    return record, agreements


def not_expressed(record: ExportRecord) -> list[str]:
    """What the run can do but the exported model cannot, not even by `mt translate`."""
    if not record.copies_words or record.target == "ctranslate2":
        return []
    return [
        "copying of unknown words (training.guided_alignment): where the run copies a word that it does not "
        "know from the source, the exported model guesses a translation, and it has no dictionaries"
    ]


def agreement_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """The comparisons as a table of text, with the header first."""
    rows = [["", "sentences", "identical", "BLEU of mt", "exported"]]
    for strategy, num_sentences, num_same, ours, theirs in agreements:
        bleu = f"{ours:.2f}", f"{theirs:.2f} ({theirs - ours:+.2f})"
        rows.append([strategy, str(num_sentences), str(num_same), *bleu])
    return rows


def _model_card(record: ExportRecord, differences: Sequence[str], agreements: Sequence[Agreement]) -> str:
    head, *rows = agreement_rows(agreements)
    missing = [f"Not in this folder: {feature}." for feature in not_expressed(record)]
    texts = {name: markdown_text(getattr(record, name)) for name in ("run", "checkpoint")}
    several = record.languages
    arguments = f"arguments are the beam size and the language to write, {' or '.join(several)}"
    return _CARD.format(
        **vars(record) | texts,
        title=markdown_text(record.known),
        arguments=arguments if several else "argument is the beam size",
        to=f" {record.tgt}" if several else "",
        first_token=_FIRST_TOKEN.format(record.tgt) if several else "",
        of_direction=markdown_text(f" from {record.src} to {record.tgt}") if record.directions else "",
        agreements=markdown_table(head, rows),
        differences="\n".join(f"- {sentence}" for sentence in (*missing, *differences)),
    )
