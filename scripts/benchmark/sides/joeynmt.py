"""JoeyNMT's training as it is, with its own batches, held between its steps."""

from typing import Any

from joeynmt import training
from joeynmt.config import load_config
from torch.optim.optimizer import register_optimizer_step_post_hook

from scripts.benchmark.session import Channel, Job, TrainingSession

SETTINGS = """
name: benchmark
joeynmt_version: "2.3.0"
model_dir: "{folder}/joeynmt-model"
use_cuda: {use_cuda}
fp16: {use_cuda}
random_seed: {seed}
num_workers: 0
data:
  train: "{folder}/train"
  dev: "{folder}/train"
  dataset_type: plain
  sample_dev_subset: 8
  src: {{lang: src, level: word, max_length: 200, voc_file: "{folder}/vocabulary.src"}}
  trg: {{lang: tgt, level: word, max_length: 200, voc_file: "{folder}/vocabulary.tgt"}}
testing: {{beam_size: 1}}
training:
  normalization: tokens
  optimizer: adam
  adam_betas: [0.9, 0.98]
  learning_rate: 0.0001
  scheduling: warmupinversesquareroot
  learning_rate_warmup: 1000
  clip_grad_norm: 1.0
  label_smoothing: 0.1
  loss: crossentropy
  batch_type: token
  batch_size: {batch_tokens}
  epochs: 1000000
  updates: 1000000
  logging_freq: 1000000
  validation_freq: 1000000
  shuffle: true
model:
  tied_embeddings: false
  tied_softmax: true
  encoder: &stack
    type: transformer
    num_layers: {num_layers}
    num_heads: {num_heads}
    hidden_size: {d_model}
    ff_size: {d_ff}
    dropout: 0.1
    layer_norm: post
    embeddings: {{embedding_dim: {d_model}, scale: true, dropout: 0.1}}
  decoder: *stack
"""


def run(channel: Channel, job: Job) -> None:
    description = job.workload.description
    (job.folder / "joeynmt-model").mkdir(exist_ok=True)
    config = job.folder / "joeynmt.yaml"
    config.write_text(
        SETTINGS.format(
            folder=job.folder,
            use_cuda=str(job.device == "cuda").lower(),
            seed=description.seed,
            batch_tokens=description.batch_tokens,
            num_layers=job.size.num_layers,
            num_heads=job.size.num_heads,
            d_model=job.size.d_model,
            d_ff=job.size.d_ff,
        )
    )
    session = TrainingSession(channel, job.device)
    loss_and_gradient = training.TrainManager._train_step
    newest: list[Any] = []

    def remembering_step(manager: Any, batch: Any) -> Any:
        newest[:] = [batch]
        return loss_and_gradient(manager, batch)

    def count(*_: object) -> None:
        [batch] = newest
        session.after_step(int(batch.trg_mask[:, 0].sum()))

    def train_and_validate(manager: Any, *args: Any, **kwargs: Any) -> None:
        session.ready()
        register_optimizer_step_post_hook(count)
        whole_training(manager, *args, **kwargs)

    whole_training = training.TrainManager.train_and_validate
    training.TrainManager._train_step = remembering_step
    training.TrainManager.train_and_validate = train_and_validate
    training.train(0, 1, load_config(str(config)), skip_test=True)
