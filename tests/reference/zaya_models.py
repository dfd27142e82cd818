"""Tiny random ZAYA1 models for tests/reference/zaya.py, and tokens for which no choice of a class
is near to tipping over.
"""

import sys

import torch
import transformers

import zaya_formulas
from models import CONTEXT, SEQUENCES, STEPS

SIZES = dict(vocab_size=32, hidden_size=16, max_position_embeddings=64, pad_token_id=None,
             bos_token_id=None, eos_token_id=0)
NEW_TOKENS = 12  # that follow a prompt
MARGIN = 0.1  # the least by which a chosen class leads in the first batch
TRIED = 10  # tokens at each position


def rope(theta):
    """As the class writes it: "hybrid_sliding" is there even if no layer is of that type."""
    form = dict(rope_type="default", partial_rotary_factor=0.5)
    return dict(hybrid=form | dict(rope_theta=theta), hybrid_sliding=form | dict(rope_theta=1e4))


MODELS = {
    # The published shape in small: one value head of this token, one of the token before.
    "zaya": dict(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                 num_experts=6, moe_intermediate_size=4, router_hidden_size=8,
                 rope_parameters=rope(1e4)),
    # Half of each value head is of the token before.
    "zaya_untied": dict(num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                        head_dim=12, num_experts=4, moe_intermediate_size=6, router_hidden_size=10,
                        tie_word_embeddings=False, rope_parameters=rope(500.0)),
    # As many query heads as key heads.
    "zaya_ungrouped": dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                           head_dim=4, num_experts=3, moe_intermediate_size=4, router_hidden_size=6,
                           rope_parameters=rope(1e6)),
}
FIRST_MODEL = next(iter(MODELS))


def build(config):
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                         experts_implementation="eager").train()


def value_of(name, tensor, generator):
    """Random values for a weight, far from those at which its effect cancels out."""
    normal = torch.randn(tensor.shape, generator=generator)
    uniform = torch.rand(tensor.shape, generator=generator)
    if name.endswith(("norm.weight", "states_scale", "residual_scale")):
        return 1 + 0.3 * normal
    if name.endswith("temp"):
        return 0.6 + uniform
    if name.endswith("balancing_biases"):
        return 0.1 * normal
    if "router_mlp" in name:
        return normal * (0.3 if name.endswith("bias") else 0.8)
    if name.endswith(("bias", "depthwise.weight")):
        return (0.2 if name.endswith("bias") else 0.6) * normal
    return normal * (0.6 if "embed" in name else 0.35)


def set_random(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tied = model.config.tie_word_embeddings and name == "lm_head.weight"
            if not tied:
                tensor.copy_(value_of(name, tensor, generator))


@torch.no_grad()
def spread(model, seed):
    """Makes the mean of each class's logits 0 and their deviation 2: a random router chooses one or
    two classes whatever the token."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, model.config.vocab_size, (200, CONTEXT), generator=generator)
    for layer in model.model.layers:  # in order, since later layers see what earlier ones choose
        output, inputs = layer.mlp.gate.router_mlp.out_proj, []
        hook = output.register_forward_hook(lambda module, given, _: inputs.append(given[0]))
        model(tokens)
        hook.remove()
        x = inputs[0].flatten(0, 1)
        mean = x.mean(0)
        output.weight -= torch.outer(output.weight @ mean, mean) / (mean @ mean)
        output.weight *= 2 / (x @ output.weight.T).std(0, keepdim=True).T


def double_weights(model):
    weights = {name: tensor.double().clone() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return weights


def sure_sequences(weights, config, generator):
    """Random sequences in which each token is one of those that keep every chosen class MARGIN
    above the next, or the surest of some if none does."""
    count = 2 * STEPS * SEQUENCES
    tokens = torch.empty((count, 0), dtype=torch.int64)
    for position in range(CONTEXT):
        new = torch.randint(0, config["vocab_size"], (count * TRIED, 1), generator=generator)
        longer = torch.cat([tokens.repeat_interleave(TRIED, 0), new], 1)
        _, _, margins = zaya_formulas.forward(weights, config, longer, "zero")
        margins = margins[:, :, -1].amin(0).view(count, TRIED).clamp(max=MARGIN)
        tokens = longer.view(count, TRIED, -1)[torch.arange(count), margins.argmax(1)]
    return tokens


@torch.no_grad()
def pick_tokens(weights, config, seed):
    """[steps, sequences, context] tokens whose choices have wide margins. None if there are none
    for which every class of every layer is chosen in the first batch, the skip class by no more
    than a third, all by at least MARGIN, and the biases change a choice."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sure_sequences(weights, config, generator)
    _, choices, margins = zaya_formulas.forward(weights, config, tokens, "zero")
    unbiased = {name: tensor * 0 if name.endswith("balancing_biases") else tensor
                for name, tensor in weights.items()}
    changed = choices != zaya_formulas.forward(unbiased, config, tokens, "zero")[1]
    margins = margins.amin((0, 2))
    order = margins.argsort(descending=True)[:STEPS * SEQUENCES]
    for _ in range(300):
        order = order[torch.randperm(len(order), generator=generator)]
        first = order[:SEQUENCES]
        counts = torch.stack([layer.flatten().bincount(minlength=config["num_experts"] + 1)
                              for layer in choices[:, first]])
        often = counts[:, -1] > SEQUENCES * CONTEXT // 3
        if ((counts > 0).all() and not often.any() and changed[:, first].any()
                and margins[first].min() >= MARGIN):
            return tokens[order].view(STEPS, SEQUENCES, CONTEXT).int()
    return None


def greedy(weights, config, prompts):
    """Tokens that follow each prompt and by how much each was the best, without a cache."""
    tokens, lead = prompts, []
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits, _, margins = zaya_formulas.forward(weights, config, tokens, "zero")
            best = logits[:, -1].topk(2).values
            lead.append(torch.minimum(best[:, 0] - best[:, 1], margins.amin((0, 2))))
            tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], 1)
    return tokens[:, prompts.shape[1]:], torch.stack(lead).amin(0)


def pick_prompt(weights, config, length):
    """The prompt whose greedy tokens are the surest and not all alike."""
    generator = torch.Generator().manual_seed(length)
    size = (min(300, config["vocab_size"] ** length), length)
    prompts = torch.randint(0, config["vocab_size"], size, generator=generator)
    if length == 1:
        prompts = torch.arange(config["vocab_size"])[:, None]
    tokens, lead = greedy(weights, config, prompts)
    various = torch.tensor([len(set(row.tolist())) for row in tokens])
    best = (lead * (various >= various.max() - 2)).argmax()
    return prompts[best], tokens[best], float(lead[best])


def checkpoint(settings, folder):
    """Saves a model whose first batch is as pick_tokens wants it. Returns its config and tokens."""
    model_config = transformers.ZayaConfig(**SIZES, **settings)
    model = build(model_config)
    config = model_config.to_dict()
    for seed in range(1, 1000):
        set_random(model, seed)
        spread(model, seed)
        tokens = pick_tokens(double_weights(model), config, seed)
        if tokens is not None:
            model.save_pretrained(folder)
            (folder / "generation_config.json").unlink(missing_ok=True)
            return config, tokens
    sys.exit("no seed gives a model that chooses every class")
