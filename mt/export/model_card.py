"""The model card, ``README.md`` of an exported folder: what it is, how it was verified, how it differs."""

from collections.abc import Sequence

from mt.display import markdown_table, markdown_text
from mt.export.target import ExportTarget
from mt.inference.engine.verification import NEAR_TIE, Agreement
from mt.inference.exported_folder import ExportRecord

COPYING = (
    "copying of unknown words (training.guided_alignment): where the run copies a word that it does not know "
    "from the source, the exported model guesses a translation, and it has no dictionaries"
)
"""What `mt translate` can do with a folder for CTranslate2, but nothing can with other folders."""


def not_expressed(record: ExportRecord) -> list[str]:
    """What the run can do but the exported model cannot."""
    return [COPYING] if record.copies_words and record.target != "ctranslate2" else []


def agreement_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """The comparisons as a table of text, with the header first."""
    names = "sentences, identical, near-ties, BLEU of mt, exported"
    head = ["", *names.split(", "), "sentences/s of mt", "exported"]
    return [head] + [
        [
            each.strategy,
            str(each.num_sentences),
            str(each.num_same),
            _near_ties(each),
            f"{each.our_bleu:.2f}",
            f"{each.their_bleu:.2f} ({each.their_bleu - each.our_bleu:+.2f})",
            f"{each.our_speed:,.0f}",
            f"{each.their_speed:,.0f}",
        ]
        for each in agreements
    ]


def _near_ties(agreement: Agreement) -> str:
    """How many different translations are near-ties, if they were examined, which is only so in float32."""
    if agreement.num_same < agreement.num_sentences and not agreement.mismatches:
        return "-"
    return str(len({mismatch.line for mismatch in agreement.mismatches if mismatch.is_near_tie}))


def model_card(record: ExportRecord, target: ExportTarget, agreements: Sequence[Agreement]) -> str:
    """The text of the model card, in Markdown."""
    src, tgt, run, checkpoint = map(markdown_text, (record.src, record.tgt, record.run, record.checkpoint))
    missing = [f"- Not in this folder: {each}." for each in not_expressed(record)]
    head, *rows = agreement_rows(agreements)
    parts = [
        f"---\nlibrary_name: {target.name}\npipeline_tag: translation\n---",
        f"# {run}: {src} to {tgt}",
        f"A Transformer trained with mt {record.mt_version}, exported to {target.name} in {record.precision} "
        f"from checkpoint {checkpoint} of the run {run}. It reads and writes at most {record.max_length} "
        "tokens.",
        "## Use",
        "`example.py` translates the lines of its standard input without mt; its argument is the beam "
        "size:\n\n```bash\npython example.py 5 < lines.txt\n```",
        "## Verification",
        "Validation sentences were translated by mt and by the model in this folder. "
        "Identical means the same tokens when mt searches by the rules of this library (see the end). A "
        f"near-tie is a difference that a change of the log-probabilities by at most {NEAR_TIE:g} explains. "
        "Speeds were measured on one machine, with the same number of threads.",
        markdown_table(head, rows),
        *_listed(agreements),
        "## Differences from mt",
        "\n".join([*missing, *(f"- {sentence}" for sentence in target.differences)]),
    ]
    return "\n\n".join(parts) + "\n"


def _listed(agreements: Sequence[Agreement]) -> list[str]:
    return [
        f"- {each.strategy}, sentence {mismatch.line}: mt (log-probability {mismatch.our_score:.4f}) "
        f"{markdown_text(mismatch.ours)}; exported ({mismatch.their_score:.4f}) "
        f"{markdown_text(mismatch.theirs)}; a near-tie"
        for each in agreements
        for mismatch in each.mismatches
    ]
