"""The commands, their options, and the options of a config: what users may rely on."""

from typing import Any

import pytest
import typer.main

from mt.cli.app import app
from mt.config.config import Config

COMMANDS = {
    "init": (
        "--data --src --tgt --both-ways --name --recipe --columns --minutes --delimiter --init-from "
        "--student-of --output -o"
    ),
    "check": "--config -c --set --run --verbose -v --json",
    "train": "--config -c --set --run --max-time --restart --init-from",
    "translate": (
        "SENTENCES --run --to --ensemble --file -f --pairs --format --on-error --beam --length-penalty "
        "--length-normalization --n-best --sample --temperature --top-k --top-p --seed --min-length "
        "--max-length --no-repeat-ngram --prefix --keep-unk --as-is --keep --keep-none --dictionary "
        "--checkpoint --device --precision --engine --verbose -v --json --alignment"
    ),
    "evaluate": (
        "--run --to --from --ensemble --split --data --name --beam --length-penalty --length-normalization "
        "--checkpoint --literature --scores-only --behaviours --worst --json --outputs --device --precision "
        "--engine --format --fail-under"
    ),
    "compare": (
        "SYSTEMS --to --from --split --data --name --beam --length-penalty --length-normalization "
        "--checkpoint --show --json --device --against --format"
    ),
    "score": "--run --to --ensemble --tokens --checkpoint --device --precision --json",
    "attention": (
        "SENTENCES --run --to --file -f --target-column --out --format --layer --checkpoint --device"
    ),
    "serve": (
        "--run --demo --host --port --token-file --max-text --max-queue --timeout --allow-origin "
        "--log-format --log-texts --checkpoint --device --precision --engine --verbose -v"
    ),
    "average": "--run --last --best",
    "import": "SOURCE --run --src --tgt",
    "export": "FOLDER --to --run --checkpoint --precision --data --private --license --yes",
    "runs": "PATHS --sort --format --scores --json",
    "show": "RUN --json",
    "report": "--run --out -o --format --sentences --checkpoint --device",
    "config": "NAME",
    "schema": "",
}

# The least and the most that an option of a command may be.
LIMITS = {
    "translate": (
        "--beam 1 100 --length-penalty 0.0 10.0 --n-best 1 - --temperature 0.01 100.0 --top-k 0 - "
        "--top-p 0.001 1.0 --seed 0 4294967295 --min-length 0 - --max-length 1 - --no-repeat-ngram 0 -"
    ),
    "serve": "--port 0 65535 --max-text 1 - --max-queue 1 - --timeout 1 86400",
    "init": "--minutes 0.001 10000000.0",
    "average": "--last 1 - --best 1 -",
    "attention": "--layer 1 -",
    "evaluate": "--worst 0 - --fail-under 0.0 100.0",
    "compare": "--show 0 -",
    "report": "--sentences 0 -",
}

OPTIONS = {
    "data": (
        "path name revision src tgt columns delimiter num_train_pairs write_src write_tgt "
        "sources temperature mix held_out_fraction max_length hub_timeout_seconds"
    ),
    "cleaning": (
        "unicode_form invisible unescape_html skip_bad_rows min_characters max_characters max_length_ratio "
        "remove_control_characters src_script tgt_script remove_identical remove_duplicates remove_leaks"
    ),
    "as_written": "upper title no_final_punctuation typos joined noise",
    "tokenizer": "kind path lowercase min_frequency max_size shared extend max_lines",
    "model": (
        "d_model num_heads num_encoder_layers num_decoder_layers d_ff dropout attention_dropout "
        "activation_dropout word_dropout activation norm_first bias initial_std share_embeddings tie_output"
        " output_bias"
    ),
    "schedule": "kind learning_rate factor warmup_steps total_steps",
    "training": (
        "seed device precision tf32 compile batch_tokens num_micro_batches label_smoothing guided_alignment "
        "keep_share unknown_share lexicon_start r_drop bpe_dropout muon muon_interval softmax_interval "
        "adam_beta1 adam_beta2 adam_epsilon weight_decay clip_norm "
        "ema_decay freeze stages max_steps max_epochs max_minutes max_skipped_steps log_every_steps "
        "report_to"
    ),
    "validation": "every_steps every_epochs metric over patience num_samples batch_sentences",
    "checkpoint": "every_steps every_epochs keep",
    "init_from": "run checkpoint parts sha256",
}


def test_commands_and_their_options_are_those_that_are_promised() -> None:
    program: Any = typer.main.get_command(app)
    options = {
        command: [
            name if name.startswith("-") else name.upper()
            for parameter in program.get_command(None, command).params
            for name in parameter.opts
        ]
        for command in program.commands
    }
    assert options == {command: promised.split() for command, promised in COMMANDS.items()}


def test_config_options_are_those_that_are_promised() -> None:
    options = {
        name: list(section.annotation.model_fields)
        for name, section in Config.model_fields.items()
        if section.annotation is not None
    }
    assert options == {name: promised.split() for name, promised in OPTIONS.items()}


@pytest.mark.parametrize("command", LIMITS)
def test_numbers_are_accepted_up_to_their_limits(command: str) -> None:
    program: Any = typer.main.get_command(app)
    parameters = {name: each for each in program.get_command(None, command).params for name in each.opts}
    words = LIMITS[command].split()
    for option, *limits in zip(words[::3], words[1::3], words[2::3], strict=True):
        for limit, sign in zip(limits, (-1, 1), strict=True):
            if limit != "-":
                convert, beyond = parameters[option].type, float(limit) + sign * 0.0005
                assert convert(limit) == float(limit)
                with pytest.raises(typer.BadParameter, match="is not in the range"):
                    convert(str(beyond) if "." in limit else str(int(limit) + sign))
