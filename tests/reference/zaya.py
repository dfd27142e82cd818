"""Tiny random ZAYA1 models, and what the `zaya` classes of Hugging Face transformers compute.

Writes tests/fixtures/models/NAME/ for every model of zaya_models.py, as tests/reference/models.py
does for the other families:

  config.json, model.safetensors   the model as transformers saves it
  expected.safetensors             f32 unless said; weights by Tessera's names (PARTS)
    tokens        i32 [steps, sequences, context]: the batches; the first is that of all below
    initial/NAME  the weights of model.safetensors, and the balancing biases
    choices       i32 [layers, sequences, context]: the chosen class; the last is the skip class
    margin        [1] the least of what a chosen class had above the next, bias included
    logits        [sequences, context, vocabulary]
    logits_bf16   the same of the model in bf16, widened
    loss          [1] mean cross-entropy over target tokens (each token but a sequence's first)
    loss_bf16     [1] the same of the model in bf16
    balance_loss  [1] 0: the classes have none
    gradient/NAME of the loss
    gradient_error_bf16/NAME  [1] root mean square error of the bf16 model's gradient, over the root
                  mean square of the gradient above
    trained/NAME  weights after a step of AdamW on each batch, gradients clipped; balancing biases
                  stay as they were
    f64/...       logits, loss, gradient/NAME: f64, computed in f64
    decode/N/prompt, decode/N/tokens   i32: a prompt of N tokens, and those that follow greedily;
                  the end token, 0, does not end them
    f64/decode/N/logits                f64 [new tokens, vocabulary], with a cache
    f64/skip_input/...  logits, loss and, for the first model, gradient/NAME: f64. Here the skip
                  class gives the normed input times its probability, as in other public ports of
                  ZAYA1. In transformers it gives 0, and so in all above. From zaya_formulas.py

The classes compute some steps in f32 whatever the model's type. For f64 their torch.float32 is
replaced. Everything in f64 is compared with zaya_formulas.py, which writes the formulas out anew.
Usage, with torch and transformers >= 5.24 installed (the versions stand in the files' metadata):

  python3 tests/reference/zaya.py
"""

import contextlib
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.zaya import modeling_zaya

import zaya_formulas
from models import BETAS, CLIP, EPSILON, LEARNING_RATE, WEIGHT_DECAY
from zaya_models import (FIRST_MODEL, MODELS, NEW_TOKENS, build, checkpoint, double_weights,
                         pick_prompt)

PROMPTS = (1, 2, 5)

# Transformers' names within a layer and Tessera's.
PARTS = {
    "input_layernorm.weight": "attention_norm.weight",
    "self_attn.qkv_proj.q_proj.weight": "attention.query",
    "self_attn.qkv_proj.k_proj.weight": "attention.key",
    "self_attn.qkv_proj.v_proj_current.weight": "attention.value_current",
    "self_attn.qkv_proj.v_proj_delayed.weight": "attention.value_delayed",
    "self_attn.qkv_proj.conv_qk_depthwise.weight": "attention.depthwise.weight",
    "self_attn.qkv_proj.conv_qk_depthwise.bias": "attention.depthwise.bias",
    "self_attn.qkv_proj.conv_qk_grouped.weight": "attention.grouped.weight",
    "self_attn.qkv_proj.conv_qk_grouped.bias": "attention.grouped.bias",
    "self_attn.qk_norm.temp": "attention.temperature",
    "self_attn.o_proj.weight": "attention.output",
    "post_attention_residual_scale.hidden_states_scale": "attention_merge.output_scale",
    "post_attention_residual_scale.hidden_states_bias": "attention_merge.output_bias",
    "post_attention_residual_scale.residual_scale": "attention_merge.residual_scale",
    "post_attention_residual_scale.residual_bias": "attention_merge.residual_bias",
    "post_attention_layernorm.weight": "feed_forward_norm.weight",
    "mlp.gate.down_proj.weight": "router.down.weight",
    "mlp.gate.down_proj.bias": "router.down.bias",
    "mlp.gate.router_states_scale": "router.state_scale",
    "mlp.gate.balancing_biases": "router.balancing_biases",
    "mlp.gate.router_mlp.norm.weight": "router.norm.weight",
    "mlp.gate.router_mlp.fc1.weight": "router.first.weight",
    "mlp.gate.router_mlp.fc1.bias": "router.first.bias",
    "mlp.gate.router_mlp.fc2.weight": "router.second.weight",
    "mlp.gate.router_mlp.fc2.bias": "router.second.bias",
    "mlp.gate.router_mlp.out_proj.weight": "router.output",
    "mlp.experts.down_proj": "experts.down",
    "post_mlp_residual_scale.hidden_states_scale": "feed_forward_merge.output_scale",
    "post_mlp_residual_scale.hidden_states_bias": "feed_forward_merge.output_bias",
    "post_mlp_residual_scale.residual_scale": "feed_forward_merge.residual_scale",
    "post_mlp_residual_scale.residual_bias": "feed_forward_merge.residual_bias",
}
WHOLE = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.input_hidden_states_scale": "embedding_scale.scale",
    "model.input_hidden_states_bias": "embedding_scale.bias",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "head.weight",
}


def tessera_names(tensors):
    """Renames and splits transformers' tensors into Tessera's."""
    result = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().clone().contiguous()
        if name in WHOLE:
            result[WHOLE[name]] = tensor
            continue
        _, _, layer, part = name.split(".", 3)
        if part == "mlp.experts.gate_up_proj":  # [experts, gate then up, hidden]
            gate, up = tensor.chunk(2, dim=1)
            result[f"layers.{layer}.experts.gate"] = gate.contiguous()
            result[f"layers.{layer}.experts.up"] = up.contiguous()
        else:
            result[f"layers.{layer}.{PARTS[part]}"] = tensor
    return result


class DoubleTorch:
    """The module torch, but what it calls float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


@contextlib.contextmanager
def double_steps():
    modeling_zaya.torch = DoubleTorch()
    try:
        yield
    finally:
        modeling_zaya.torch = torch


@torch.no_grad()
def decode(model, prompt):
    """Greedy tokens after the prompt and their logits, with transformers' cache."""
    tokens, logits, cache, given = [], [], None, prompt[None]
    for _ in range(NEW_TOKENS):
        output = model(input_ids=given, cache=cache, use_cache=True)
        cache = output.cache
        logits.append(output.logits[0, -1])
        given = output.logits[:, -1:].argmax(-1)
        tokens.append(given[0, 0])
    return torch.stack(tokens), torch.stack(logits)


def watched(model, tokens):
    """Logits, the loss and the choices, with a graph for gradients."""
    choices = []

    def note(module, _, output):
        _, probability, index, _ = output
        skipped = probability == 0  # the classes write the skip class as expert 0 with weight 0
        choices.append(index.masked_fill(skipped, module.num_experts).view(tokens.shape))

    hooks = [layer.mlp.gate.register_forward_hook(note) for layer in model.model.layers]
    output = model(input_ids=tokens.long(), labels=tokens.long())
    for hook in hooks:
        hook.remove()
    loss = output.loss
    if output.logits.dtype == torch.float64:  # theirs would be of logits in f32
        loss = zaya_formulas.loss(output.logits, tokens)
    return output.logits, loss, torch.stack(choices)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def by_formulas(weights, config, tokens, skip, names):
    """Logits, the loss and its gradients for the weights `names`."""
    leaves = weights | {name: weights[name].clone().requires_grad_() for name in names}
    logits, _, _ = zaya_formulas.forward(leaves, config, tokens, skip)
    loss = zaya_formulas.loss(logits, tokens)
    found = torch.autograd.grad(loss, [leaves[name] for name in names])
    return logits.detach(), loss.detach().reshape(1), dict(zip(names, found))


def near(what, found, expected, tolerance):
    error = float((found - expected).abs().max() / expected.abs().max())
    if not error <= tolerance:
        sys.exit(f"{what}: off by {error:.1e} of the largest, more than {tolerance}")
    return error


def load(folder, dtype):
    """The saved model. Transformers 5.24.0 sets the skip class's balancing bias back to its initial
    -1 when it loads a model, so all balancing biases are read again."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").train()
    saved = load_file(folder / "model.safetensors")
    for name, buffer in model.named_buffers():
        if name.endswith("balancing_biases"):
            buffer.copy_(saved[name])
    return model


def add_double(expected, name, folder, config, tokens):
    """What is computed in f64, each compared with the formulas."""
    with double_steps():
        model = build(transformers.ZayaConfig.from_pretrained(folder)).double()
        saved = load_file(folder / "model.safetensors")
        missing = model.load_state_dict(saved, strict=False)
        if missing.unexpected_keys or set(missing.missing_keys) - {"lm_head.weight"}:
            sys.exit(f"{folder}: {missing}")
        if not config["tie_word_embeddings"] and "lm_head.weight" not in saved:
            sys.exit(f"{folder} has no head")
        logits, loss, choices = watched(model, tokens[0])
        loss.backward()
        weights = double_weights(model)
        found = gradients(model)
        ours_logits, ours_loss, ours = by_formulas(weights, config, tokens[0], "zero", list(found))
        worst = near("logits", logits.detach(), ours_logits, 1e-10)
        near("loss", loss.detach(), ours_loss, 1e-10)
        worst_gradient = max(near(key, found[key], ours[key], 1e-9) for key in found)
        expected["f64/logits"] = logits.detach().clone()
        expected["f64/loss"] = loss.detach().reshape(1).clone()
        for key, value in tessera_names(found).items():
            expected["f64/gradient/" + key] = value

        model.eval()
        leads = []
        for length in PROMPTS:
            prompt, ours_tokens, lead = pick_prompt(weights, config, length)
            decoded, decoded_logits = decode(model, prompt)
            if decoded.tolist() != ours_tokens.tolist():
                sys.exit(f"decoding {length} tokens: {decoded.tolist()}, {ours_tokens.tolist()}")
            whole = torch.cat([prompt, decoded])[None, :-1]
            ours_logits = zaya_formulas.forward(weights, config, whole, "zero")[0][0, length - 1:]
            near("decoded logits", decoded_logits, ours_logits, 1e-10)
            expected[f"decode/{length}/prompt"] = prompt.int()
            expected[f"decode/{length}/tokens"] = decoded.int()
            expected[f"f64/decode/{length}/logits"] = decoded_logits
            leads.append(lead)

    logits, loss, skipping = by_formulas(weights, config, tokens[0], "input", list(found))
    expected["f64/skip_input/logits"], expected["f64/skip_input/loss"] = logits, loss
    if name == FIRST_MODEL:
        for key, value in tessera_names(skipping).items():
            expected["f64/skip_input/gradient/" + key] = value
    print(f"{name}: logits off the formulas by {worst:.1e}, gradients by {worst_gradient:.1e}; "
          f"decoding leads by {min(leads):.3f}")
    return choices


def add_rounded(expected, folder, tokens, choices):
    """What the model computes in f32 and bf16."""
    model = load(folder, torch.float32)
    for key, value in tessera_names(load_file(folder / "model.safetensors")).items():
        expected["initial/" + key] = value
    logits, loss, chosen = watched(model, tokens[0])
    near("logits in f32", logits.detach().double(), expected["f64/logits"], 1e-5)
    loss.backward()
    expected["logits"], expected["loss"] = logits.detach().clone(), loss.detach().reshape(1).clone()
    expected["balance_loss"] = torch.zeros(1)
    for key, value in tessera_names(gradients(model)).items():
        expected["gradient/" + key] = value
        near(key + " in f32", value.double(), expected["f64/gradient/" + key], 1e-4)
    for length in PROMPTS:
        found = decode(model, expected[f"decode/{length}/prompt"].long())[0]
        if found.tolist() != expected[f"decode/{length}/tokens"].tolist():
            sys.exit(f"decoding {length} tokens in f32: {found.tolist()}")

    rounded = load(folder, torch.bfloat16)
    logits, loss, chosen_rounded = watched(rounded, tokens[0])
    loss.backward()
    expected["logits_bf16"] = logits.detach().float()
    expected["loss_bf16"] = loss.detach().float().reshape(1)
    for key, value in tessera_names(gradients(rounded)).items():
        exact = expected["gradient/" + key]
        error = (value.float() - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        expected["gradient_error_bf16/" + key] = error.reshape(1)
    if not ((chosen == choices).all() and (chosen_rounded == choices).all()):
        sys.exit("a rounded model chooses other classes")
    return model


def train(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPSILON,
                                  weight_decay=WEIGHT_DECAY, foreach=False)
    for batch in tokens:
        optimizer.zero_grad()
        watched(model, batch)[1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return tessera_names(dict(model.named_parameters()))


def write(name, settings, folder):
    config, tokens = checkpoint(settings, folder)
    expected = {"tokens": tokens}
    choices = add_double(expected, name, folder, config, tokens)
    saved = load_file(folder / "model.safetensors")
    weights = {key: value.double() for key, value in saved.items()}
    _, ours, margins = zaya_formulas.forward(weights, config, tokens[0], "zero")
    if not (ours == choices).all():
        sys.exit("transformers chooses other classes than the formulas")
    expected["choices"] = choices.int()
    expected["margin"] = margins.min().float().reshape(1)
    trained = train(add_rounded(expected, folder, tokens, choices), tokens)
    with double_steps():
        exact = build(transformers.ZayaConfig.from_pretrained(folder)).double()
        exact.load_state_dict(weights, strict=False)
        for key, value in train(exact, tokens).items():
            near("trained " + key, trained[key].double(), value, 3e-6)
            expected["trained/" + key] = trained[key]

    versions = {"made_by": "tests/reference/zaya.py", "torch": torch.__version__,
                "transformers": transformers.__version__, "python": sys.version.split()[0]}
    save_file(expected, folder / "expected.safetensors", metadata=versions)
    for file in folder.iterdir():
        file.chmod(0o644)
    skipped = (choices == config["num_experts"]).double().mean((1, 2))
    print(f"  loss {float(expected['loss']):.6f}, f64 {float(expected['f64/loss']):.6f}, bf16 "
          f"{float(expected['loss_bf16']):.6f}; margin {float(expected['margin']):.4f}; skipped "
          f"{[round(float(part), 2) for part in skipped]}")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.disable_progress_bar()
    root = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "models"
    for name, settings in MODELS.items():
        write(name, settings, root / name)


if __name__ == "__main__":
    main()
