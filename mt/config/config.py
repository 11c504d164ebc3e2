"""The whole config: its sections, and the checks that need more than one of them."""

from typing import Any, Self

from pydantic import model_validator

from mt.config.data import (
    IMPORTED,
    OWN,
    AsWrittenConfig,
    CleaningConfig,
    DataConfig,
    TokenizerConfig,
)
from mt.config.located_yaml import Scalar
from mt.config.model import InitFromConfig, ModelConfig
from mt.config.section import Section
from mt.config.training import LEAST_TIMED, CheckpointConfig, ScheduleConfig, TrainingConfig, ValidationConfig

TRAINING_ONLY = {"dropout", "attention_dropout", "activation_dropout", "word_dropout"}


class Config(Section):
    """All options of a run."""

    data: DataConfig
    cleaning: CleaningConfig = CleaningConfig()
    as_written: AsWrittenConfig = AsWrittenConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig = TrainingConfig()
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    init_from: InitFromConfig = InitFromConfig()

    @property
    def aligning_heads(self) -> tuple[int, int]:
        """The decoder layer, from 0, that aligns words, and how many of its heads are averaged for that.

        Guided alignment trains one head to. Otherwise the last layer but one aligns best (Garg et al. 2019);
        of two, the last.
        """
        num_layers = self.model.num_decoder_layers
        if self.training.guided_alignment:
            return num_layers - 1, 1
        return num_layers - (2 if num_layers > 2 else 1), self.model.num_heads

    @property
    def copies_words(self) -> bool:
        """Whether the model learns to copy words; subwords do so only where they are to be kept."""
        may_copy = self.tokenizer.kind == "word" or self.training.keep_share > 0
        return may_copy and self.training.guided_alignment > 0

    @property
    def length_is_open(self) -> bool:
        """Whether the run chooses its number of steps by its own speed, at the end of the warm-up."""
        is_open = (self.schedule.kind, self.schedule.total_steps) == ("cosine", "auto")
        return is_open and self.training.max_steps is None

    def with_options(self, **sections: dict[str, Any]) -> Self:
        """A copy with these options of its sections, which are not checked again."""
        changed = {name: getattr(self, name).model_copy(update=keys) for name, keys in sections.items()}
        return self.model_copy(update=changed)

    def computation(self) -> dict[str, Scalar]:
        """The options, such as ``model.num_heads``, that determine what weights compute outside training."""
        model = self.model.model_dump(exclude=TRAINING_ONLY)
        return {
            **{f"model.{key}": value for key, value in model.items()},
            "data.max_length": self.data.max_length,
            "tokenizer.kind": self.tokenizer.kind,
            "training.guided_alignment": self.training.guided_alignment,
        }

    @model_validator(mode="after")
    def _check_across_sections(self) -> Self:
        if self.model.share_embeddings and not self.tokenizer.shared:
            raise ValueError("model.share_embeddings needs tokenizer.shared: true, one vocabulary for both.")
        if self.tokenizer.kind == "imported" and not (self.init_from.sides or self.data.path == IMPORTED):
            raise ValueError("tokenizer.kind: imported is that of mt import: name its run as init_from.run.")
        if self.tokenizer.extend and self.init_from.run is None:
            raise ValueError("tokenizer.extend adds to the vocabularies of init_from.run: name that run.")
        for name in ("upper", "title", "typos"):
            if getattr(self.as_written, name) and self.tokenizer.kind == "word":
                why = "a model of words reads unknown forms as the words that it knows"
                raise ValueError(f"as_written.{name} is for subwords or characters: {why}. Leave it out.")
        if self.tokenizer.lowercase and (self.as_written.upper or self.as_written.title):
            raise ValueError("tokenizer.lowercase excludes as_written.upper and as_written.title.")
        training = self.training
        schedule = self.schedule
        if training.bpe_dropout and self.tokenizer.kind not in ("bpe", "bpe_metaspace"):
            raise ValueError("training.bpe_dropout needs tokenizer.kind bpe or bpe_metaspace.")
        if training.bpe_dropout and training.guided_alignment:
            raise ValueError("training.bpe_dropout and training.guided_alignment exclude each other.")
        if training.keep_share and not training.guided_alignment:
            raise ValueError("training.keep_share needs training.guided_alignment, which aligns words.")
        if training.lexicon_start and not training.guided_alignment:
            raise ValueError("training.lexicon_start needs training.guided_alignment, which aligns words.")
        for name, stage in training.stages.items():
            if unknown := stage.weights.keys() - {OWN, *self.data.sources}:
                known = ", ".join([OWN, *self.data.sources])
                where = f"training.stages.{name}.weights.{min(unknown)}"
                raise ValueError(f"{where}: there is no such source, only {known}.")
        if (self.validation.over, self.validation.metric) == ("all", "loss"):
            raise ValueError("validation.over: all needs validation.metric bleu or chrf.")
        if self.length_is_open and schedule.warmup_steps < LEAST_TIMED:
            raise ValueError(
                f"schedule.total_steps: auto needs a schedule.warmup_steps of at least {LEAST_TIMED}, whose "
                "steps are timed, or training.max_steps."
            )
        if self.length_is_open and training.max_minutes is None:
            raise ValueError("schedule.total_steps: auto needs training.max_minutes or training.max_steps.")
        if 0 < schedule.fixed_steps < (training.max_steps or 0) and schedule.kind == "cosine":
            end = f"schedule.total_steps ({schedule.total_steps}), where the cosine reaches zero"
            raise ValueError(f"training.max_steps is above {end}: raise it in a new run.")
        if not training.limits and self.validation.patience is None:
            limits = "training.max_steps, training.max_epochs, training.max_minutes or validation.patience"
            raise ValueError(f"nothing ends this run: set {limits}.")
        return self
