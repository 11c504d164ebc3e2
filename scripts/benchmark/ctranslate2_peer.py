"""What ten lines with CTranslate2 do with the lines of stdin: FOLDER BEAM THREADS COMPUTE_TYPE."""

import sys

import ctranslate2
import tokenizers

folder, beam, threads, compute_type = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
src, tgt = (tokenizers.Tokenizer.from_file(f"{folder}/{side}_tokenizer.json") for side in ("src", "tgt"))
layout = {"inter_threads": threads, "intra_threads": 1, "compute_type": compute_type}
translator = ctranslate2.Translator(folder, **layout)
lines = sys.stdin.read().splitlines()
tokens = [each.tokens for each in src.encode_batch(lines, add_special_tokens=False)]
options = {"beam_size": beam, "max_batch_size": 2048, "batch_type": "tokens", "disable_unk": True}
results = translator.translate_batch(tokens, max_input_length=63, max_decoding_length=63, **options)
ids = tgt.get_vocab()
for result in results:
    print(tgt.decode([ids[token] for token in result.hypotheses[0]]))
