"""What TensorBoard needs besides metrics: a chart layout and hyper-parameters."""

from collections.abc import Mapping

from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from torch.utils.tensorboard.summary import custom_scalars, hparams

from mt.config.located_yaml import Scalar

# Regular expressions for tags, three charts per row. The same in all runs, as TensorBoard would add others.
_CHARTS = {
    "1 Does it learn?": {
        "loss: training (smoothed, with dropout), validation": ["train/loss$", "validation/loss$"],
        "BLEU and chrF of validation": ["validation/(bleu|chrf)(_on_.*)?$"],
        "learning rate": ["train/learning_rate$"],
    },
    "2 Is it healthy?": {
        "gradient norm before clipping, and its limit": ["train/(gradient_norm|clip_norm)$"],
        "update-to-weight ratio of a step": ["train/update_ratio$"],
        "share of steps skipped so far": ["train/skipped_share$"],
    },
    "3 Is it fast?": {
        "target tokens per second": ["train/tokens_per_second$"],
        "target tokens of a step": ["train/step_target_tokens$"],
        "share of padding in a step": ["train/padding_share$"],
    },
    "4 Translations of validation": {
        "length ratio: words of translations by words of references": ["validation/length_ratio$"],
        "share of unknown words": ["validation/unknown_share$"],
    },
    "5 Layer by layer": {
        "gradient norm: encoder": [r"layers/gradient_norm/encoder\."],
        "gradient norm: decoder": [r"layers/gradient_norm/decoder\."],
        "gradient norm: embeddings and output": [r"layers/gradient_norm/(\w+_embedding|output)"],
        "weight norm: encoder": [r"layers/weight_norm/encoder\."],
        "weight norm: decoder": [r"layers/weight_norm/decoder\."],
        "weight norm: embeddings and output": [r"layers/weight_norm/(\w+_embedding|output)"],
    },
}


def layout() -> Summary:
    """The charts of the Custom Scalars page, the most important ones first."""
    return custom_scalars(  # type: ignore[no-untyped-call]
        {
            category: {title: ["Multiline", tags] for title, tags in charts.items()}
            for category, charts in _CHARTS.items()
        }
    )


def hyperparameters(options: Mapping[str, Scalar]) -> Summary:
    """The run's row on the HParams page, without the options that are None.

    Its columns are left to TensorBoard, which puts options in which runs differ first, and takes the metrics
    from the curves, in the order of their tags.
    """
    known = {name: value for name, value in options.items() if value is not None}
    return hparams(known, {})[1]  # type: ignore[no-untyped-call]
