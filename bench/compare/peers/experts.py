"""transformers' implementations of the experts, one that autocast lacks, and routing that is forced."""

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward
from transformers.models.olmoe.modeling_olmoe import OlmoeTopKRouter


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


class UniformRouter(OlmoeTopKRouter):
    """What Tessera's model.forced_uniform_routing does: the j-th choice of token t is expert
    (t k + j) mod experts, whatever the probabilities are. They still give the weights."""

    def forward(self, hidden_states):
        hidden_states = hidden_states.reshape(-1, self.hidden_dim)
        logits = torch.nn.functional.linear(hidden_states, self.weight)
        probabilities = logits.softmax(dim=-1, dtype=torch.float)
        choices = torch.arange(len(hidden_states) * self.top_k, device=logits.device) % self.num_experts
        indices = choices.view(-1, self.top_k)
        return logits, probabilities.gather(1, indices).to(logits.dtype), indices


def force_uniform_routing(model):
    for module in model.modules():
        if isinstance(module, OlmoeTopKRouter):
            module.__class__ = UniformRouter
