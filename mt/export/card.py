"""The model card, ``README.md`` of an exported folder: what it is, how it was verified, how it differs."""

from collections.abc import Sequence

from mt.display import markdown_table, markdown_text
from mt.inference.engine.verification import Agreement
from mt.inference.exported_folder import ExportRecord

_COPYING = (
    "copying of unknown words (training.guided_alignment): where the run copies a word that it does not know "
    "from the source, the exported model guesses a translation, and it has no dictionaries"
)


def not_expressed(record: ExportRecord) -> list[str]:
    """What the run can do but the exported model cannot, not even by `mt translate`."""
    return [_COPYING] if record.copies_words and record.target != "ctranslate2" else []


def agreement_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """The comparisons as a table of text, with the header first."""
    head = ["", "sentences", "identical", "BLEU of mt", "exported", "sentences/s of mt", "exported"]
    return [head] + [
        [
            agreement.strategy,
            str(agreement.num_sentences),
            str(agreement.num_same),
            f"{agreement.our_bleu:.2f}",
            f"{agreement.their_bleu:.2f} ({agreement.their_bleu - agreement.our_bleu:+.2f})",
            f"{agreement.our_speed:,.0f}",
            f"{agreement.their_speed:,.0f}",
        ]
        for agreement in agreements
    ]


def model_card(record: ExportRecord, differences: Sequence[str], agreements: Sequence[Agreement]) -> str:
    """The text of the model card, in Markdown."""
    src, tgt, run, checkpoint = map(markdown_text, (record.src, record.tgt, record.run, record.checkpoint))
    missing = [f"Not in this folder: {feature}." for feature in not_expressed(record)]
    head, *rows = agreement_rows(agreements)
    parts = [
        f"---\nlibrary_name: {record.target}\npipeline_tag: translation\n---",
        f"# {run}: {src} to {tgt}",
        f"A Transformer trained with mt {record.mt_version}, exported to {record.target} in "
        f"{record.precision} from checkpoint {checkpoint} of the run {run}. It reads and writes at most "
        f"{record.max_length} tokens.",
        "## Use",
        "`example.py` translates the lines of its standard input without mt; its argument is the beam "
        "size:\n\n```bash\npython example.py 5 < lines.txt\n```",
        "## Verification",
        "Validation sentences were translated by mt and by the model in this folder. Speeds were measured "
        "on one machine, with the same number of threads.",
        markdown_table(head, rows),
        "## Differences from mt",
        "\n".join(f"- {sentence}" for sentence in (*missing, *differences)),
    ]
    return "\n\n".join(parts) + "\n"
