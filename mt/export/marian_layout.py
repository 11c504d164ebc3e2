"""How the weights of Marian in `transformers` correspond to ours.

Its positions have all sines before all cosines, while ours alternate. Nothing else in the model depends on
the order of the hidden dimensions, so they are permuted everywhere.
"""

import torch
from torch import Tensor, nn

from mt.transformer.transformer import Transformer

# Options of the model: theirs, and ours.
OPTIONS = {
    "d_model": "d_model",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "d_ff",
    "decoder_ffn_dim": "d_ff",
    "dropout": "dropout",
    "activation_function": "activation",
}
# Parts of the names of weights, ours and theirs, replaced one after another.
_NAMES = {
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    ".norm": ".layer_norm",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    ".query": ".q_proj",
    ".key": ".k_proj",
    ".value": ".v_proj",
    "attn.output": "attn.out_proj",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
}
_READS_HIDDEN = (".fc1", ".q_proj", ".k_proj", ".v_proj")
"""The matrices whose columns are the hidden dimensions; of all others it is the rows."""


def sines_first(width: int) -> Tensor:
    """The positions of all sines, then those of all cosines: ``(width,)``."""
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def layers(model: Transformer) -> dict[str, tuple[str, nn.Linear | nn.LayerNorm]]:
    """The linear layers and norms of both stacks by their names in `transformers`, each with our name."""
    named = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm | nn.Linear) and name != "output":
            theirs = name
            for part, replacement in _NAMES.items():
                theirs = theirs.replace(part, replacement)
            named[f"model.{theirs}"] = name, module
    return named


def permuted(theirs: str, weight: Tensor, bias: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The weight and bias of the layer with that name there, with the hidden dimensions in another order."""
    if theirs.endswith(_READS_HIDDEN):
        return weight[:, order], bias
    return weight[order], bias[order]
