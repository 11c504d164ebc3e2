"""The ``training``, ``schedule``, ``validation`` and ``checkpoint`` sections: how the model learns."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mt.config.section import Count, CountOrNone, Fraction, Section, TextOrNone, Weight, changeable

LEAST_TIMED = 10
"""The fewest steps by whose time a run chooses its length."""
TRACKERS = ("wandb", "mlflow", "trackio")


class ScheduleConfig(Section):
    """The learning rate."""

    kind: Literal["noam", "inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    """The shape after the warm-up; noam is the paper's, with a peak that depends on d_model (section 5.3)."""

    learning_rate: float = Field(default=1e-3, gt=0, lt=1e35)
    """The peak at the end of the warm-up; ignored by noam, which computes its own."""

    factor: float = Field(default=1.0, gt=0, lt=1e35)
    """Multiplies the learning rate of noam; ignored by the other kinds."""

    warmup_steps: int = Field(default=1000, ge=0)
    """Steps over which the learning rate rises linearly from zero; noam needs at least 1."""

    total_steps: int | Literal["auto"] | None = None
    """The step at which cosine reaches zero; auto: max_steps, or as many steps as fit into max_minutes."""

    @property
    def fixed_steps(self) -> int:
        """The total number of steps; 0 if it is chosen later, or never."""
        return self.total_steps if isinstance(self.total_steps, int) else 0

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        is_open = self.total_steps == "auto"
        if self.kind == "cosine" and not is_open and self.fixed_steps <= self.warmup_steps:
            least = f"schedule.warmup_steps ({self.warmup_steps})"
            raise ValueError(f"schedule.kind: cosine needs schedule.total_steps above {least}.")
        if self.kind == "noam" and self.warmup_steps < 1:
            raise ValueError("schedule.warmup_steps must be at least 1 if schedule.kind is noam.")
        return self


class StageConfig(Section):
    """A part of a run, with weights of its own for the sources of the training pairs."""

    steps: Count
    """The steps of this stage."""

    weights: dict[str, Annotated[float, Field(ge=0, le=1000)]] = Field(default={})
    """How often an epoch shows each pair of a source; others keep their weight, and 0 leaves one out."""


class TrainingConfig(Section):
    """How the model learns, and when it stops."""

    seed: int = Field(default=1, ge=0, lt=10**18)  # torch takes no seed of 2**64.
    """Random seed of weights, dropout and the order of the data."""

    device: Literal["auto", "cpu", "cuda", "mps"] = changeable("auto")
    """auto uses CUDA if available, else Apple's MPS, else the CPU."""

    precision: Literal["auto", "mixed", "float32", "bf16", "fp16"] = "auto"
    """auto is mixed on CUDA, else float32; mixed is bf16 if that is fast, or fp16 on CUDA, else float32."""

    tf32: bool = False
    """Allow TF32 for float32 matrix products on CUDA: faster since Ampere, with about 3 decimal digits."""

    compile: Literal["auto", True, False] = "auto"
    """Compile the layers with torch.compile, on CUDA only; auto does so in runs of 10,000 steps or more."""

    batch_tokens: Count = 4096
    """Batch size in tokens of the longer side, including padding."""

    num_micro_batches: Count = 1
    """Batches whose gradients are accumulated into one step."""

    label_smoothing: Fraction = 0.1
    """Probability spread evenly over the whole vocabulary (section 5.4)."""

    guided_alignment: Weight = 0.0
    """Weight of the alignment loss (Chen et al. 2016); with tokenizer.kind word, unknown words are copied."""

    keep_share: Fraction = 0.0
    """With guided_alignment: fraction of pairs in which a word, all its pieces, learns to stay."""

    unknown_share: Fraction = 0.2
    """The same for words alone, as earlier versions have it; ignored with keep_share."""

    lexicon_start: bool = False
    """Begin as a word-by-word translator, by the words that guided_alignment aligns; not with init_from."""

    r_drop: Weight = 0.0
    """Weight of the R-Drop loss (Liang et al. 2021), such as 5; doubles the time of a step; 0: off."""

    bpe_dropout: Fraction = 0.0
    """Fraction of BPE merges skipped in training (Provilkov et al. 2020), such as 0.1; 0: off."""

    muon: bool = False
    """Update the layers' matrices with Muon (Jordan et al. 2024): slower steps, but fewer are needed."""

    muon_interval: Count = 1
    """Steps between two updates of a matrix by Muon; the matrices take turns, and move as much further."""

    softmax_interval: Count = 1
    """Compare the words of a batch with each n-th of the others, for shorter steps (Jean et al. 2015)."""

    adam_beta1: Fraction = 0.9
    """Decay rate of Adam's moving average of the gradient."""

    adam_beta2: Fraction = 0.98
    """Decay rate of Adam's moving average of the squared gradient."""

    adam_epsilon: float = Field(default=1e-9, ge=1e-30)
    """Added to Adam's denominator to avoid division by zero."""

    weight_decay: Weight = 0.0
    """Weight decay of AdamW and Muon, times the learning rate; norms, biases and embeddings are exempt."""

    clip_norm: float | None = Field(default=1.0, gt=0)
    """Clip the gradient to this norm; null: no clipping."""

    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Validate and save a moving average of the weights with this decay, such as 0.999; null: no average."""

    freeze: TextOrNone = None
    """Patterns of the names of weights that stay as they are, with commas, such as encoder.*; null: none."""

    stages: dict[str, StageConfig] = Field(default={})
    """Parts of the run, by names of your own, each with its steps and the weights of sources in it."""

    max_steps: CountOrNone = changeable(None)
    """Stop after this many steps."""

    max_epochs: CountOrNone = changeable(None)
    """Stop after this many passes over the training split."""

    max_minutes: float | None = changeable(None, gt=0, lt=10**9)
    """Stop after this many minutes of training, including those before a resume."""

    max_skipped_steps: Count = changeable(20)
    """Stop after this many steps in a row with a NaN or infinite gradient, which are skipped."""

    log_every_steps: Count = changeable(20)
    """Steps between log entries, which are also the points of the training curves."""

    report_to: TextOrNone = changeable(None)
    """Trackers that get the metrics, with commas: wandb, mlflow, trackio; null: none."""

    @property
    def trackers(self) -> list[str]:
        """The names in ``report_to``."""
        return [name.strip() for name in self.report_to.split(",")] if self.report_to else []

    @model_validator(mode="after")
    def _check_trackers(self) -> Self:
        for name in self.trackers:
            if name not in TRACKERS:
                raise ValueError(f"training.report_to: '{name}' is not one of {', '.join(TRACKERS)}.")
        return self

    @model_validator(mode="before")
    @classmethod
    def _add_up_stages(cls, keys: Any) -> Any:
        try:
            total = sum(stage["steps"] for stage in keys["stages"].values())
        except (LookupError, TypeError, AttributeError):  # None, or none that can be added up.
            return keys
        return keys if keys.get("max_steps") is not None or not total else keys | {"max_steps": total}

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if not self.stages:
            return self
        total = sum(stage.steps for stage in self.stages.values())
        if self.max_epochs is not None:
            raise ValueError("training.max_epochs: epochs are counted in each stage; leave it out.")
        if self.max_steps != total:
            raise ValueError(f"training.max_steps: the stages have {total:,} steps; leave it out.")
        return self

    def stage_at(self, step: int) -> tuple[int, int]:
        """The number, from 0, of the stage of the step after ``step`` others, and the first step of it."""
        start = number = 0
        for stage in [*self.stages.values()][:-1]:
            if step < start + stage.steps:
                break
            start += stage.steps
            number += 1
        return number, start

    @property
    def limits(self) -> dict[str, float]:
        """Those of ``max_steps``, ``max_epochs`` and ``max_minutes`` that are set."""
        return self.model_dump(include={"max_steps", "max_epochs", "max_minutes"}, exclude_none=True)


class ValidationConfig(Section):
    """How the model is validated while it trains."""

    every_steps: Count = changeable(500)
    """Steps between two validations; there is always one at the end."""

    every_epochs: CountOrNone = changeable(None)
    """Validate at the end of every Nth epoch, such as 1, in place of every_steps; null: every_steps."""

    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """The metric that decides which checkpoint is the best, and when to stop early."""

    over: Literal["own", "all"] = "own"
    """Whether that is the metric of data.path's validation split, or the mean over those of all sources."""

    patience: CountOrNone = changeable(None)
    """Stop after this many validations without improvement; null: never."""

    num_samples: int = changeable(4, ge=0)
    """Validation sentences whose translations are shown."""

    batch_sentences: Count = changeable(384)
    """Maximum number of sentences translated at once; fewer if they are long."""


class CheckpointConfig(Section):
    """How the run is saved."""

    every_steps: Count = changeable(500)
    """Steps between two checkpoints; each new best and the last step are saved as well."""

    every_epochs: CountOrNone = changeable(None)
    """Also save at the end of every Nth epoch, such as 1; null: only every every_steps steps."""

    keep: Count = changeable(3)
    """How many of the newest checkpoints to keep; the best one is always kept."""
