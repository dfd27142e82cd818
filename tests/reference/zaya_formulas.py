"""ZAYA1 written out from its formulas, one short function for each part. tests/reference/zaya.py
checks the classes of transformers with it, and it shares no code with them. Weights are a
dictionary by the names of transformers, `config` is what config.json says, and all is computed in
the weights' type. Tensors are [sequences, positions, ...] unless said.
"""

import math

import torch


def rms_norm(x, weight, config):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + config["rms_norm_eps"])


def earlier(x, first):
    """What stood a position earlier; before the beginning stands `first`, a vector of channels."""
    return torch.cat([first.expand_as(x[:, :1]), x[:, :-1]], dim=1)


def convolutions(x, weights, name, heads):
    """The depthwise convolution and then the one within each head, over this position and the one
    before. Only x is padded with zeros, so that the first gives its bias before the beginning."""
    part = lambda which: weights[name + which]
    weight, bias = part("conv_qk_depthwise.weight")[:, 0], part("conv_qk_depthwise.bias")
    y = weight[:, 0] * earlier(x, torch.zeros_like(bias)) + weight[:, 1] * x + bias
    taps = part("conv_qk_grouped.weight").unflatten(0, (heads, -1))  # [heads, out, in, 2]
    in_heads = lambda channels: channels.unflatten(-1, (heads, -1))
    z = torch.einsum("bthi,hoi->btho", in_heads(earlier(y, bias)), taps[..., 0])
    z = z + torch.einsum("bthi,hoi->btho", in_heads(y), taps[..., 1])
    return z + in_heads(part("conv_qk_grouped.bias"))  # [sequences, positions, heads, head size]


def rotate(x, config):
    """RoPE on the first channels of each head; channel i turns with channel i + half."""
    rope = config["rope_parameters"]["hybrid"]
    turned = int(config["head_dim"] * rope["partial_rotary_factor"])
    half = turned // 2
    frequency = rope["rope_theta"] ** (-2 * torch.arange(half, dtype=x.dtype) / turned)
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None, None] * frequency
    cos, sin = angle.cos(), angle.sin()  # [positions, 1, half]
    a, b, rest = x[..., :half], x[..., half:turned], x[..., turned:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attention(h, weights, name, config):
    size, heads = config["head_dim"], config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    group = heads // kv_heads
    projections = name + "qkv_proj."
    project = lambda part, x: x @ weights[projections + part + ".weight"].T

    q0, k0 = project("q_proj", h), project("k_proj", h)
    z = convolutions(torch.cat([q0, k0], -1), weights, projections, heads + kv_heads)
    grouped_q0 = q0.unflatten(-1, (kv_heads, group, size))
    k0 = k0.unflatten(-1, (kv_heads, size))
    q = z[:, :, :heads] + ((grouped_q0 + k0[:, :, :, None]) / 2).flatten(2, 3)
    k = z[:, :, heads:] + (grouped_q0.mean(3) + k0) / 2

    unit = lambda x: x * math.sqrt(size) * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-12)
    q = rotate(unit(q), config)
    k = rotate(unit(k) * weights[name + "qk_norm.temp"][:, None], config)
    before = earlier(h, torch.zeros_like(h[0, 0]))
    v = torch.cat([project("v_proj_current", h), project("v_proj_delayed", before)], -1)
    v = v.unflatten(-1, (kv_heads, size))

    q = q.unflatten(2, (kv_heads, group))
    scores = torch.einsum("bikgd,bjkd->bkgij", q, k) / math.sqrt(size)
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    p = scores.masked_fill(later, -math.inf).softmax(-1)
    mixed = torch.einsum("bkgij,bjkd->bikgd", p, v).flatten(2)
    return mixed @ weights[name + "o_proj.weight"].T


def route(h, state, weights, name, config):
    """The chosen class of each position, its probability without the bias, by how much the biased
    one is above the next, and the state for the next layer."""
    linear = lambda part, x: (x @ weights[name + part + ".weight"].T +
                              weights.get(name + part + ".bias", 0))
    gelu = lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2
    state_now = linear("down_proj", h)
    if state is not None:
        state_now = state_now + weights[name + "router_states_scale"] * state
    x = rms_norm(state_now, weights[name + "router_mlp.norm.weight"], config)
    x = gelu(linear("router_mlp.fc2", gelu(linear("router_mlp.fc1", x))))
    p = linear("router_mlp.out_proj", x).softmax(-1)
    best = (p.detach() + weights[name + "balancing_biases"]).topk(2)
    choice = best.indices[..., 0]
    margin = best.values[..., 0] - best.values[..., 1]
    return choice, p.gather(-1, choice[..., None]), margin, state_now


def mixture(h, choice, probability, weights, name, config, skip):
    """`skip` says what the class after the experts gives: "zero", or "input", which is h times its
    probability."""
    output = torch.zeros_like(h)
    for expert in range(config["num_experts"]):
        gate, up = (h @ weights[name + "experts.gate_up_proj"][expert].T).chunk(2, -1)
        result = (gate * torch.sigmoid(gate) * up) @ weights[name + "experts.down_proj"][expert].T
        output = torch.where((choice == expert)[..., None], probability * result, output)
    if skip == "input":
        output = torch.where((choice == config["num_experts"])[..., None], probability * h, output)
    return output


def merge(output, residual, weights, name):
    part = lambda x, which: (x + weights[name + which + "_bias"]) * weights[name + which + "_scale"]
    return part(output, "hidden_states") + part(residual, "residual")


def forward(weights, config, tokens, skip):
    """Logits [sequences, positions, vocabulary], and the choices and their margins [layers,
    sequences, positions]."""
    embedding = weights["model.embed_tokens.weight"]
    r = embedding[tokens.long()] + weights["model.input_hidden_states_bias"]
    r = r * weights["model.input_hidden_states_scale"]
    state, choices, margins = None, [], []
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        h = rms_norm(r, weights[name + "input_layernorm.weight"], config)
        output = attention(h, weights, name + "self_attn.", config)
        r = merge(output, r, weights, name + "post_attention_residual_scale.")
        h = rms_norm(r, weights[name + "post_attention_layernorm.weight"], config)
        choice, p, margin, state = route(h, state, weights, name + "mlp.gate.", config)
        output = mixture(h, choice, p, weights, name + "mlp.", config, skip)
        r = merge(output, r, weights, name + "post_mlp_residual_scale.")
        choices.append(choice)
        margins.append(margin)
    h = rms_norm(r, weights["model.norm.weight"], config)
    head = weights.get("lm_head.weight", embedding)
    return h @ head.T, torch.stack(choices), torch.stack(margins)


def loss(logits, tokens):
    """Mean cross-entropy of each token but a sequence's first."""
    right = logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None].long())
    return -right.mean()
