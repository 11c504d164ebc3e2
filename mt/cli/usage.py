"""Command-line mistakes: what was probably meant."""

import inspect
import itertools
from shlex import quote
from typing import Any

from typer.core import TyperCommand

from mt.cli.options import is_run
from mt.errors import ConfigError

# The name of an option here, and in other tools; if a command has several of them, the first is suggested.
FLAGS = {
    "--run": "model model-path model-dir run-dir run-path checkpoint-dir checkpoint-path output-dir out-dir "
    "save-dir model-name-or-path experiment",
    "--checkpoint": "ckpt weights step load checkpoint-name",
    "--config": "cfg yaml config-file config-path",
    "--file": "input input-file src-file source-file in infile text-file",
    "--data": "dataset corpus data-path data-dir test-set path",
    "--src": "source source-lang src-lang source-language lang-src",
    "--tgt": "target target-lang tgt-lang target-language trg lang-tgt",
    "--beam": "beam-size beam-width num-beams beams",
    "--max-length": "max-len max-output-length max-new-tokens max-tokens",
    "--min-length": "min-len min-output-length min-tokens",
    "--n-best": "nbest num-return-sequences n-best-size",
    "--sample": "sampling do-sample",
    "--top-k": "topk sampling-topk",
    "--top-p": "topp sampling-topp nucleus",
    "--length-penalty": "lenpen alpha",
    "--no-repeat-ngram": "no-repeat-ngram-size block-ngram-repeat",
    "--split": "subset part",
    "--device": "gpu cuda cpu use-gpu no-cuda",
    "--restart": "overwrite force from-scratch no-resume",
    "--max-time": "time time-limit timeout",
    "--last": "num-checkpoints n checkpoints num",
    "--set": "override overrides option",
}
SPLITS = {
    **dict.fromkeys(("dev", "val", "valid", "eval"), "validation"),
    **dict.fromkeys(("training", "trn"), "train"),
    **dict.fromkeys(("testing", "tst"), "test"),
}


class Command(TyperCommand):
    """A command that suggests the right option for a wrong one."""

    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        super().__init__(*args, help=_unwrapped(help or ""), **more)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; what to write instead is said where it can be guessed."""
        if self.name == "init":
            args = _with_recipe_name(args)
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # The classes of these errors differ between versions of typer.
            if hasattr(error, "format_message") and (meant := self._meant(given, error)):
                raise ConfigError(meant) from error
            raise

    def _meant(self, args: list[str], error: Any) -> str | None:
        """The message for arguments that were refused, if the right ones can be suggested."""
        if flag := getattr(error, "option_name", None):
            return self._meant_by_flag(str(flag)) if flag not in self._flags() else None
        wrong_split = next(
            (split for split in map(_split_in, args, [*args[1:], ""]) if split in SPLITS), None
        )
        if wrong_split is not None:
            return (
                f"--split {wrong_split}: the splits of a corpus are train, validation and test. "
                f"Did you mean --split {SPLITS[wrong_split]}?"
            )
        configs = [arg for arg in args if arg.endswith((".yaml", ".yml")) and not arg.startswith("-")]
        if "--config" in self._flags() and configs and not {"--config", "-c"} & set(args):
            return f"{self.name} takes its config with --config: mt {self.name} --config {configs[0]}"
        runs = [arg for arg in args if not arg.startswith("-") and is_run(arg)]
        if "--run" in self._flags() and "--config" not in self._flags() and runs and "--run" not in args:
            return f"{self.name} takes its run with --run: mt {self.name} --run {quote(runs[0])}"
        return None

    def _meant_by_flag(self, flag: str) -> str | None:
        name = flag.lstrip("-").lower().replace("_", "-")
        if name == "run" and self.name in ("show", "runs", "compare"):
            return f"{self.name} takes a run without an option: mt {self.name} RUN"
        here = [option for option, others in FLAGS.items() if name in others.split()]
        here += [f"--{name}"]
        for option in here:
            if option in self._flags():
                return f"{self.name} has no option {flag}. Did you mean {option}?"
        if "--set" not in self._flags():
            return None
        from mt.config.synonyms import meaning_of

        meaning = meaning_of(name) or next(
            (f"{section}.{key}" for section, key in _options() if key == name.replace("-", "_")), None
        )
        if meaning is None or "." not in meaning:
            return None
        sets = " ".join(f"--set {option}=..." for option in meaning.split(" and "))
        return f"{self.name} has no option {flag}. Options of the config are set in its file, or with {sets}"

    def _flags(self) -> set[str]:
        return {flag for parameter in self.params for flag in parameter.opts}


def _unwrapped(help: str) -> str:
    """Each paragraph on one line, which typer then wraps; lists, such as those of exit codes, as they are."""
    paragraphs = inspect.cleandoc(help).split("\n\n")
    return "\n\n".join(text if "\n " in f"\n{text}" else text.replace("\n", " ") for text in paragraphs)


def _with_recipe_name(args: list[str]) -> list[str]:
    """Give ``--recipe`` an empty name, which lists all recipes, if it has none.

    Typer has no options with an optional value.
    """
    return [
        each
        for arg, after in itertools.pairwise([*args, "-"])
        for each in ([arg, ""] if arg == "--recipe" and after.startswith("-") else [arg])
    ]


def _split_in(arg: str, following: str) -> str | None:
    """The value of --split, if this argument is that option."""
    name, equals, value = arg.partition("=")
    if name != "--split":
        return None
    return value if equals else following


def _options() -> list[tuple[str, str]]:
    from mt.config.explain import SECTIONS

    return [(section, key) for section, fields in SECTIONS.items() for key in fields]
