"""What ten lines with CTranslate2 and tokenizers do: FOLDER FILE BEAM WORKERS THREADS."""

import sys
from pathlib import Path

import ctranslate2
import tokenizers

folder, file, beam, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
src, tgt = (tokenizers.Tokenizer.from_file(f"{folder}/{side}_tokenizer.json") for side in ("src", "tgt"))
threads = max(1, int(sys.argv[5]) // workers)
translator = ctranslate2.Translator(folder, inter_threads=workers, intra_threads=threads)
lines = Path(file).read_text(encoding="utf-8").splitlines()
tokens = [each.tokens for each in src.encode_batch(lines, add_special_tokens=False)]
options = {"beam_size": beam, "max_batch_size": 2048, "batch_type": "tokens", "disable_unk": True}
results = translator.translate_batch(tokens, max_input_length=63, max_decoding_length=63, **options)
ids = tgt.get_vocab()
for result in results:
    print(tgt.decode([ids[token] for token in result.hypotheses[0]]))
