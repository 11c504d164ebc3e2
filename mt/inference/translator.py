"""Translates and scores text with a trained model: the Python API, without torch where the engine is."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from mt import processes
from mt.errors import ConfigError, DeviceError
from mt.inference.engines import Aligner, Engine
from mt.inference.exported_folder import ExportedFolder
from mt.inference.labels import aligned_words, label_read, label_written
from mt.inference.segments import Translation, copied_words
from mt.inference.text_search import TextSearch
from mt.run_directory import RunDirectory, as_run

if TYPE_CHECKING:
    import torch

    from mt.device import PrecisionName
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.score import ScoredPair

LOG = logging.getLogger(__name__)

EngineChoice = Literal["auto", "torch", "ctranslate2"]


class Translator(TextSearch):
    """A trained model, or an ensemble of several, with its tokenizers.

    translator = Translator.from_run("runs/quickstart")
    translator.translate(["the dog sees a house."], strategy=Beam(5))
    """

    def __init__(
        self,
        engine: Engine,
        folder: ExportedFolder,
        *,
        dictionary: Mapping[str, str] | None = None,
        load_model: "Callable[[], ModelTranslator] | None" = None,
    ) -> None:
        """Translate with an engine over the converted model in ``folder``.

        ``load_model`` loads the model into torch, for what the engine cannot do; None if there is nothing
        else.
        """
        super().__init__(
            engine,
            *folder.tokenizers(),
            max_length=folder.record.max_length,
            target_ratio=folder.record.target_ratio,
            copies_words=folder.record.copies_words,
            dictionary=dictionary,
            load_torch=None if load_model is None else lambda: self._model().engine,
        )
        self.src, self.tgt, self.checkpoint = folder.record.src, folder.record.tgt, folder.record.checkpoint
        self._load_model = load_model
        self._loaded_model: ModelTranslator | None = None

    @classmethod
    def from_run(
        cls,
        run: str | Path | RunDirectory,
        *,
        checkpoint: str = "best",
        device: "str | torch.device" = "auto",
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[str | Path | RunDirectory] = (),
        precision: "PrecisionName" = "auto",
        engine: EngineChoice = "auto",
    ) -> "Translator":
        """Load a run's model from the named checkpoint, never from another one.

        Args:
            run: The run directory, such as ``runs/quickstart``.
            checkpoint: ``best``, ``latest``, or a checkpoint's name.
            device: Where to compute: a device, or ``auto``, ``cpu``, ``cuda`` or ``mps``.
            dictionary: Source words, with the translations to use for them.
            others: Runs with the same languages and vocabularies, to translate as an ensemble
                (`mt.search.ensemble`).
            precision: What to compute in; ``auto`` is what is fast and was found good enough: on a CPU int8
                or float32 by CTranslate2, or bf16 or float32 by torch; on a GPU 16 bits.
            engine: What searches: ``ctranslate2``, for which the checkpoint is converted at its first use,
                ``torch``, or ``auto`` for CTranslate2 where it can do what is asked. ``translator.engine``
                says which it is, and why.

        Raises:
            RunError: If there is no such run, or another run has different languages or
                vocabularies.
            CheckpointError: If that checkpoint is missing or damaged.
            DeviceError: If this machine has no such device, or the device does not support that precision.
            ConfigError: If there is a dictionary, but a model has not learnt to copy words, or if the engine
                cannot do what is asked.
            DataError: If two entries of the dictionary contradict each other.
        """
        if engine not in get_args(EngineChoice):
            raise ValueError(f"engine must be auto, torch or ctranslate2, not {engine!r}")
        run = as_run(run)

        def load_model(why: str = "the other engine cannot do all of it") -> "ModelTranslator":
            # The one import of torch in the modules that translate.
            from mt.inference.model_translator import ModelTranslator

            return ModelTranslator.from_run(
                run,
                checkpoint=checkpoint,
                device=device,
                dictionary=dictionary,
                others=others,
                precision=precision,
                why=why,
            )

        if engine == "torch":
            return load_model("it was asked for")
        if others:
            why = "an ensemble translates"
        elif processes.are_several():
            why = "several processes share the work"
        elif engine == "auto" and os.environ.get("MT_ENGINE") == "torch":
            why = "MT_ENGINE is torch"
        else:
            try:
                from mt.inference.engine.choice import load_engine
            except ImportError as error:
                why = f"{error.name} is not installed"
            else:
                found = load_engine(run, checkpoint, str(device), precision)
                if not isinstance(found, str):
                    return cls(
                        *found,
                        dictionary=dictionary,
                        load_model=load_model if engine == "auto" else None,
                    )
                why = found
        if engine == "ctranslate2":
            raise ConfigError(f"CTranslate2 cannot translate with {run.path}: {why}. Leave the engine to mt.")
        return load_model(why)

    def align(self, source: str, translations: Sequence[Translation]) -> list[list[tuple[int, int]] | None]:
        """Align the words of a text with those of translations that this translator has found.

        Returns:
            The result of `aligned_words` for each translation; None for all of a text that was translated in
            parts.
        """
        assert isinstance(self.engine, Aligner)
        if any(len(each.parts) > 1 for each in translations):
            return [None] * len(translations)
        read = label_read(self.reader, source)
        written = [
            label_written(self.tgt_tokenizer, hypothesis.ids, copied_words(segment, hypothesis))
            for each in translations
            for segment, hypothesis in each.parts
        ]
        if not written:
            return [[] for _ in translations]
        weights = self.engine.attention(read.ids, [each.ids for each in written])
        return [
            aligned_words(read.tokens, each.tokens, rows) for each, rows in zip(written, weights, strict=True)
        ]

    def score(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> "list[ScoredPair]":
        """Compute how probable the model finds given translations, by torch.

        Args:
            pairs: Sources, each with its translation.
            first_line: The number of the first pair, for messages.

        Raises:
            LinesError: If a side is too long for the model, a pair does not fit into memory, or a
                log-probability is NaN or infinite.
        """
        return self._model().score(pairs, first_line=first_line)

    def _model(self) -> "ModelTranslator":
        if self._load_model is None:
            raise ConfigError(f"{self.engine.name} cannot do this alone: give the run, with any engine.")
        self._loaded_model = self._loaded_model or self._load_model()
        return self._loaded_model


def load_exported(
    path: Path,
    *,
    device: str = "cpu",
    precision: "PrecisionName" = "auto",
    dictionary: Mapping[str, str] | None = None,
) -> Translator:
    """Load a folder that `mt export --to ctranslate2` wrote, to translate with it."""
    from mt.inference.engine.choice import open_engine

    why = "it is an exported folder"
    try:
        opened = open_engine(path, device, precision, why=why)
    except DeviceError as error:
        if device != "auto":
            raise
        opened = open_engine(path, "cpu", precision, why=why)
        LOG.warning("translating on the CPU: %s", error)
    return Translator(*opened, dictionary=dictionary)
