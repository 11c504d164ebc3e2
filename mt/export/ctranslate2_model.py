"""Exporting to CTranslate2."""

from dataclasses import replace
from pathlib import Path

from mt.inference.engine.convert import QUANTIZATIONS, write_ctranslate2
from mt.inference.engine.load import load_exported
from mt.inference.exported_folder import Target
from mt.inference.verify import STRATEGIES, Score, Translate

NAME: Target = "ctranslate2"
PRECISIONS = QUANTIZATIONS
EXACT = STRATEGIES
write = write_ctranslate2
DIFFERENCES = [
    "The example copies no unknown words and has no dictionary; `mt translate` with this folder does."
]
EXAMPLE = """\
# Translates the lines of standard input; needs: pip install ctranslate2 tokenizers
import json, math, pathlib, sys
import ctranslate2, tokenizers

folder = pathlib.Path(__file__).parent
record = json.loads((folder / "mt_export.json").read_text(encoding="utf-8"))
src, tgt = (tokenizers.Tokenizer.from_file(str(folder / f"{side}_tokenizer.json")) for side in ("src", "tgt"))
src.encode_special_tokens = True  # "</s>" in a text is text.
translator = ctranslate2.Translator(str(folder))
beam = int(sys.argv[1]) if len(sys.argv) > 1 else 1
languages = sorted({language for _, language in record["directions"]}) or [record["tgt"]]
to = (sys.argv[2:] or languages)[0]
if to not in languages or (len(languages) > 1 and not sys.argv[2:]):
    sys.exit("say into which language: example.py BEAM " + "|".join(languages))
# Reserved entries of the vocabulary are neither read from text nor written.
reserved = record["reserved"]
start = [name for name in reserved if name == f"<to:{to}>"]
suppressed = [["<pad>"], ["<s>"], *([name] for name in reserved if tgt.token_to_id(name) is not None)]
for stream in (sys.stdin, sys.stdout):
    stream.reconfigure(encoding="utf-8")
for line in sys.stdin:
    pieces = src.encode(line, add_special_tokens=False).tokens
    tokens = start + ["<unk>" if piece in reserved else piece for piece in pieces]
    tokens = tokens[: record["max_length"] - 1]
    limit = math.ceil(2 * max(1, record["target_ratio"]) * (len(tokens) + 1)) + 10
    result = translator.translate_batch(
        [tokens], beam_size=beam, max_decoding_length=min(limit, record["max_length"]), min_decoding_length=0,
        disable_unk=True, suppress_sequences=suppressed)
    ids = [tgt.token_to_id(token) for token in result[0].hypotheses[0]]
    print(" ".join(tgt.decode(ids, skip_special_tokens=False).split()) if pieces else "", flush=True)
"""


def load(folder: Path) -> tuple[Translate, Score]:
    """Load an exported folder, to translate texts and to score sentences."""
    exported = load_exported(folder)
    translator = exported.into(exported.facts.tgt, exported.facts.src)
    # The example does not copy unknown words.
    translator.facts = replace(translator.facts, copies_words=False)
    return translator.translate, translator.engine.score
