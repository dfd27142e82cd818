"""transformers' implementations of the experts, and one that autocast lacks."""

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward


class Bf16Weights:
    """A layer of experts as its implementation sees it, with weights in bf16."""

    def __init__(self, experts):
        self.experts = experts
        self.gate_up_proj = experts.gate_up_proj.to(torch.bfloat16)
        self.down_proj = experts.down_proj.to(torch.bfloat16)

    def __getattr__(self, name):
        return getattr(self.experts, name)


def grouped_mm_bf16(experts, hidden_states, top_k_index, top_k_weights):
    """grouped_mm with f32 weights cast to bf16 for the products. Autocast does not know PyTorch's
    grouped product, which thus computes in f32 where the weights are f32; nobody who looks for speed
    would leave it so."""
    return grouped_mm_experts_forward(Bf16Weights(experts), hidden_states, top_k_index, top_k_weights)


ALL_EXPERTS_FUNCTIONS.register("grouped_mm_bf16", grouped_mm_bf16)
IMPLEMENTATIONS = ("eager", *ALL_EXPERTS_FUNCTIONS.valid_keys())
