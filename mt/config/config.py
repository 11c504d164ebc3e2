"""The whole config: its sections, and the checks that need more than one of them."""

from typing import Self

from pydantic import model_validator

from mt.config.data import IMPORTED, CleaningConfig, DataConfig, TokenizerConfig
from mt.config.init_from import InitFromConfig
from mt.config.located_yaml import Scalar
from mt.config.model import ModelConfig
from mt.config.section import Section
from mt.config.training import CheckpointConfig, ScheduleConfig, TrainingConfig, ValidationConfig

IN_TRAINING_ALONE = {"dropout", "attention_dropout", "activation_dropout", "word_dropout"}


class Config(Section):
    """All options of a run."""

    data: DataConfig
    """Where the sentence pairs come from."""

    cleaning: CleaningConfig = CleaningConfig()
    """What is dropped from the training pairs."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes ids."""

    model: ModelConfig = ModelConfig()
    """The shape of the Transformer."""

    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate."""

    training: TrainingConfig = TrainingConfig()
    """How the model learns, and when it stops."""

    validation: ValidationConfig = ValidationConfig()
    """How the model is validated while it trains."""

    checkpoint: CheckpointConfig = CheckpointConfig()
    """How the run is saved."""

    init_from: InitFromConfig = InitFromConfig()
    """The run that this one begins from: with its weights, tokenizers and shape, and a new optimizer."""

    @property
    def copies_words(self) -> bool:
        """Whether the model learns to copy unknown words; subwords are never unknown."""
        return self.tokenizer.kind == "word" and self.training.guided_alignment > 0

    def computation(self) -> dict[str, Scalar]:
        """The options, such as ``model.num_heads``, that determine what weights compute outside training."""
        model = self.model.model_dump(exclude=IN_TRAINING_ALONE)
        return {
            **{f"model.{key}": value for key, value in model.items()},
            "data.max_length": self.data.max_length,
            "tokenizer.kind": self.tokenizer.kind,
            "training.guided_alignment": self.training.guided_alignment,
        }

    @model_validator(mode="after")
    def _check_across_sections(self) -> Self:
        if self.model.share_embeddings and not self.tokenizer.shared:
            raise ValueError(
                "model.share_embeddings needs tokenizer.shared: true, "
                "because both languages can only use one embedding if they share one vocabulary."
            )
        if self.tokenizer.kind == "imported" and not (self.init_from.sides or self.data.path == IMPORTED):
            raise ValueError(
                "tokenizer.kind: imported is that of a model from mt import: name its run as init_from.run. "
                "For new subwords, as of SentencePiece, use tokenizer.kind: bpe_metaspace."
            )
        if self.tokenizer.extend and self.init_from.run is None:
            raise ValueError("tokenizer.extend adds to the vocabularies of init_from.run: name that run.")
        training, schedule = self.training, self.schedule
        if training.bpe_dropout and self.tokenizer.kind not in ("bpe", "bpe_metaspace"):
            raise ValueError(
                f"training.bpe_dropout ({training.bpe_dropout}) skips merges of tokenizer.kind bpe or "
                f"bpe_metaspace, but the kind is {self.tokenizer.kind}. Set it to 0, or change the kind."
            )
        if training.bpe_dropout and training.guided_alignment:
            raise ValueError(
                f"training.bpe_dropout ({training.bpe_dropout}) and training.guided_alignment "
                f"({training.guided_alignment:g}) cannot be combined, because tokens are aligned once, and "
                "each epoch would have others. Set one of them to 0."
            )
        if schedule.kind == "cosine" and (training.max_steps or 0) > (schedule.total_steps or 0):
            raise ValueError(
                f"training.max_steps ({training.max_steps}) is greater than schedule.total_steps "
                f"({schedule.total_steps}), where the cosine reaches zero and the model stops learning. "
                "Raise both in a new run, or use another schedule.kind."
            )
        limits = (training.max_steps, training.max_epochs, training.max_target_tokens, training.max_minutes)
        if all(limit is None for limit in limits) and self.validation.patience is None:
            raise ValueError(
                "nothing ends this run: set training.max_steps, training.max_epochs, "
                "training.max_target_tokens, training.max_minutes or validation.patience."
            )
        return self
