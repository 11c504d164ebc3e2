"""`eole train` as it is, with its own batches, held between its steps."""

import json
import sys
from typing import Any

from eole.bin.main import main as eole_main
from eole.trainer import Trainer

from scripts.benchmark.session import Channel, Job, TrainingSession


def settings(job: Job) -> dict[str, Any]:
    """The nearest that eole's options come to what the others train; pre-norm, as its default is."""
    description = job.workload.description
    folder = job.folder
    stack = {"layers": job.size.num_layers, "hidden_size": job.size.d_model}
    return {
        "seed": description.seed,
        "src_vocab": str(folder / "vocabulary.src"),
        "tgt_vocab": str(folder / "vocabulary.tgt"),
        "src_vocab_size": description.src_vocabulary_size,
        "tgt_vocab_size": description.tgt_vocabulary_size,
        "data": {"corpus": {"path_src": str(folder / "train.src"), "path_tgt": str(folder / "train.tgt")}},
        "transforms": [],
        "save_data": str(folder / "eole"),
        "overwrite": True,
        "tensorboard": False,
        "report_every": 1_000_000,
        "training": {
            "model_path": str(folder / "eole-model"),
            "world_size": 1,
            "gpu_ranks": [0] if job.device == "cuda" else [],
            "compute_dtype": "bf16" if job.precision == "bf16" else "fp32",
            "batch_type": "tokens",
            "batch_size": description.batch_tokens,
            "normalization": "tokens",
            # Read in the process itself, so that nothing is prepared while others have their turn.
            "num_workers": 0,
            "train_steps": 1_000_000,
            "valid_steps": 1_000_000,
            "save_checkpoint_steps": 1_000_000,
            "optim": "adam",
            "adam_beta2": 0.98,
            "learning_rate": 1e-4,
            "max_grad_norm": 1.0,
            "dropout": [0.1],
            "attention_dropout": [0.0],
            "dropout_steps": [0],
            "label_smoothing": 0.1,
        },
        "model": {
            "architecture": "transformer",
            "share_decoder_embeddings": True,
            "hidden_size": job.size.d_model,
            "heads": job.size.num_heads,
            "transformer_ff": job.size.d_ff,
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "embeddings": {
                "word_vec_size": job.size.d_model,
                "position_encoding": True,
                "position_encoding_type": "SinusoidalInterleaved",
            },
            "encoder": {"encoder_type": "transformer", **stack},
            "decoder": {"decoder_type": "transformer", **stack},
        },
    }


def run(channel: Channel, job: Job) -> None:
    config = job.folder / "eole.yaml"
    # YAML's flow style is JSON.
    config.write_text(json.dumps(settings(job), indent=2))
    session = TrainingSession(channel, job.device)
    train_step = Trainer._train_step

    def counted_step(trainer: Any, batches: list[dict[str, Any]], *args: Any, **kwargs: Any) -> None:
        train_step(trainer, batches, *args, **kwargs)
        [batch] = batches
        # The target begins with BOS, which is read but not predicted.
        tgt = batch["tgt"]
        session.after_step(int(tgt.ne(trainer.train_loss.padding_idx).sum()) - len(tgt))

    def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        session.ready()
        return whole_training(trainer, *args, **kwargs)

    whole_training = Trainer.train
    Trainer._train_step, Trainer.train = counted_step, train
    sys.argv = ["eole", "train", "--config", str(config)]
    eole_main()
