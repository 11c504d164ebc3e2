"""Exporting to `transformers`."""

from mt.export.target import ExportTarget
from mt.export.transformers_engine import load_transformers
from mt.export.transformers_model import DTYPES, write_transformers

EXAMPLE = """\
# Translates the lines of standard input; needs: pip install transformers torch
import pathlib, sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = pathlib.Path(__file__).parent
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
names = [folder / f"{side}_tokenizer" for side in ("source", "target")]
src, tgt = (AutoTokenizer.from_pretrained(name if name.is_dir() else folder) for name in names)
beam = int(sys.argv[1]) if len(sys.argv) > 1 else 1
options = {"num_beams": beam, "early_stopping": True} if beam > 1 else {}
for stream in (sys.stdin, sys.stdout):
    stream.reconfigure(encoding="utf-8")
for line in sys.stdin:
    inputs = src(line, return_tensors="pt", truncation=True)
    ids = model.generate(**inputs, **options)
    print(" ".join(tgt.decode(ids[0], skip_special_tokens=True).split()) if line.strip() else "", flush=True)
"""

TRANSFORMERS = ExportTarget(
    "transformers",
    tuple(DTYPES),
    differences=(
        "`generate` has one length limit for a whole call (`max_new_tokens`, here the most that the model "
        "writes); mt has one for each sentence, about twice its source, so that a loop ends earlier.",
        "At that limit it ranks unfinished translations together with finished ones; mt uses an unfinished "
        "one only if none is finished.",
        "It ranks a beam by mean log-probability, as `mt translate` does with `--length-normalization mean`, "
        "and needs `early_stopping=True` to stop as mt does.",
    ),
    example=EXAMPLE,
    write=write_transformers,
    load=load_transformers,
)
