"""Hugging Face's Marian in the plain loop, with the batches and the first weights that `mt` has."""

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from scripts.benchmark.session import Channel, Job, TrainingSession
from scripts.benchmark.sides.plain_loop import PaddedBatch, train
from scripts.benchmark.sides.torch_loop import sinusoids
from scripts.benchmark.sizes import Size
from scripts.benchmark.workload import BOS_ID, EOS_ID, PAD_ID, Description


def build_marian(size: Size, workload: Description, weights: dict[str, Tensor]) -> MarianMTModel:
    """The Marian model that computes what `mt` does with these weights."""
    config = MarianConfig(
        vocab_size=workload.src_vocabulary_size,
        decoder_vocab_size=workload.tgt_vocabulary_size,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=True,
        max_position_embeddings=workload.max_length,
        d_model=size.d_model,
        encoder_layers=size.num_layers,
        decoder_layers=size.num_layers,
        encoder_attention_heads=size.num_heads,
        decoder_attention_heads=size.num_heads,
        encoder_ffn_dim=size.d_ff,
        decoder_ffn_dim=size.d_ff,
        activation_function="relu",
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    state = state_from_mt(weights)
    # Marian writes all sines before all cosines; a table is a table.
    positions = sinusoids(workload.max_length, size.d_model)
    state |= {f"model.{stack}.embed_positions.weight": positions for stack in ("encoder", "decoder")}
    state["lm_head.weight"] = state["model.decoder.embed_tokens.weight"]
    state["final_logits_bias"] = torch.zeros(1, workload.tgt_vocabulary_size)
    model.load_state_dict(state)
    model.tie_weights()
    return model


def state_from_mt(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names that Marian has for the weights of `mt`."""
    renamed = {
        "src_embedding.tokens": "encoder.embed_tokens",
        "tgt_embedding.tokens": "decoder.embed_tokens",
        "self_attention_residual.norm": "self_attn_layer_norm",
        "cross_attention_residual.norm": "encoder_attn_layer_norm",
        "feed_forward_residual.norm": "final_layer_norm",
        "feed_forward.inner": "fc1",
        "feed_forward.outer": "fc2",
        "self_attention": "self_attn",
        "cross_attention": "encoder_attn",
        ".query": ".q_proj",
        ".key": ".k_proj",
        ".value": ".v_proj",
        ".output": ".out_proj",
    }
    state = {}
    for name, weight in weights.items():
        for ours, theirs in renamed.items():
            name = name.replace(ours, theirs)
        state[f"model.{name}"] = weight
    return state


def run(channel: Channel, job: Job) -> None:
    description = job.workload.description
    model = build_marian(job.size, description, load_file(job.first_weights))
    torch.nn.Module.to(model, job.device)

    def logits_of(batch: PaddedBatch) -> Tensor:
        logits: Tensor = model(
            input_ids=batch.src,
            attention_mask=batch.src != PAD_ID,
            decoder_input_ids=batch.tgt,
            use_cache=False,
        ).logits
        return logits

    train(model, logits_of, TrainingSession(channel, job.device), job)
