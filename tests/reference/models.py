"""Tiny random models of each family, and what Hugging Face transformers computes with them.

Writes for every family tests/fixtures/models/NAME/:

  config.json, model.safetensors   the model as transformers saves it
  expected.safetensors             f32 unless said; weights by Tessera's names
    tokens        i32 [steps, sequences, context]: the batches; the first is that of all below
    initial/NAME  the weights of model.safetensors
    logits        [sequences, context, vocabulary]
    logits_bf16   the same of the model in bf16, widened
    loss          [1] mean cross-entropy over target tokens (each token but a sequence's first)
    balance_loss  [1] coefficient times the load-balance loss; 0 in a dense model
    gradient/NAME of loss + balance_loss
    gradient_error_bf16/NAME  [1] root mean square error of the bf16 model's gradient, over the root
                  mean square of the gradient above
    trained/NAME  weights after a step of AdamW on each batch, gradients clipped

Usage, with torch and transformers installed (the versions stand in the files' metadata):

  python3 tests/reference/models.py
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SEQUENCES, CONTEXT, STEPS = 3, 24, 10
LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-5, 0.1, 1.0
SIZES = dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, initializer_range=0.2, pad_token_id=None,
             bos_token_id=None, eos_token_id=0)
GROUPED = dict(num_key_value_heads=2)


def llama(**changes):
    sizes = SIZES | GROUPED | dict(intermediate_size=24, rms_norm_eps=1e-5, rope_parameters=dict(
        rope_type="default", rope_theta=500.0)) | changes
    return transformers.LlamaConfig(**sizes)


def models():
    rope = lambda theta: dict(rope_type="default", rope_theta=theta)
    return {
        "olmo": transformers.OlmoConfig(
            **SIZES, intermediate_size=24, clip_qkv=0.6, tie_word_embeddings=True,
            rope_parameters=rope(1e4)),
        "olmoe": transformers.OlmoeConfig(
            **SIZES, intermediate_size=8, num_experts=6, num_experts_per_tok=3, clip_qkv=2.5,
            router_aux_loss_coef=0.03, output_router_logits=True, rope_parameters=rope(1e4)),
        "llama": llama(),
        "llama_tied": llama(tie_word_embeddings=True, num_key_value_heads=1),
        "llama_rope_scaling": llama(max_position_embeddings=512, rope_parameters=dict(
            rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=64)),
        "mixtral": transformers.MixtralConfig(
            **SIZES, **GROUPED, intermediate_size=8, num_local_experts=6, num_experts_per_tok=2,
            router_aux_loss_coef=0.02, output_router_logits=True, rope_parameters=rope(1e6)),
    }


def build(config, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):  # ones tell nothing
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
    return model


def tessera_names(tensors, config):
    """Renames and splits transformers' tensors (by the classes' names) into Tessera's."""
    parts = {
        "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value", "self_attn.o_proj": "attention.output",
        "self_attn.q_norm.weight": "attention.query_norm",
        "self_attn.k_norm.weight": "attention.key_norm",
        "mlp.gate_proj": "feed_forward.gate", "mlp.up_proj": "feed_forward.up",
        "mlp.down_proj": "feed_forward.down", "mlp.experts.down_proj": "experts.down",
        "mlp.gate.weight": "router.weight", "input_layernorm": "attention_norm.weight",
        "post_attention_layernorm": "feed_forward_norm.weight",
    }
    result = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().clone().contiguous()
        short = name.removeprefix("model.")
        if short == "embed_tokens.weight":
            result["embedding.weight"] = tensor
        elif short == "norm.weight":
            result["norm.weight"] = tensor
        elif short == "lm_head.weight":
            if not config.tie_word_embeddings:
                result["head.weight"] = tensor
        else:
            _, layer, rest = short.split(".", 2)
            if rest == "mlp.experts.gate_up_proj":  # [experts, gate then up, hidden]
                gate, up = tensor.chunk(2, dim=1)
                result[f"layers.{layer}.experts.gate"] = gate.contiguous()
                result[f"layers.{layer}.experts.up"] = up.contiguous()
            else:
                key = rest if rest in parts else rest.removesuffix(".weight")
                result[f"layers.{layer}.{parts[key]}"] = tensor
    return result


def losses(model, tokens):
    output = model(input_ids=tokens.long(), labels=tokens.long())
    balance = torch.zeros(1)
    total = output.loss
    if getattr(output, "aux_loss", None) is not None:
        balance = (model.config.router_aux_loss_coef * output.aux_loss).reshape(1)
    return output.logits, total, balance


def write(name, config, folder):
    model = build(config, seed=1 + len(name))
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, config.vocab_size, (STEPS, SEQUENCES, CONTEXT), generator=generator,
                           dtype=torch.int32)
    expected = {"tokens": tokens}

    for key, value in tessera_names(dict(model.named_parameters()), config).items():
        expected["initial/" + key] = value
    logits, total, balance = losses(model, tokens[0])
    total.backward()
    expected["logits"] = logits.detach().clone()
    expected["loss"] = (total - balance).detach().reshape(1).clone()
    expected["balance_loss"] = balance.detach().clone()
    for key, value in tessera_names({n: p.grad for n, p in model.named_parameters()},
                                    config).items():
        expected["gradient/" + key] = value

    rounded = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation="eager")
    rounded.train()
    logits, total, _ = losses(rounded, tokens[0])
    total.backward()
    expected["logits_bf16"] = logits.detach().float()
    for key, value in tessera_names({n: p.grad.float() for n, p in rounded.named_parameters()},
                                    config).items():
        exact = expected["gradient/" + key]
        error = (value - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        expected["gradient_error_bf16/" + key] = error.reshape(1)

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPSILON,
                                  weight_decay=WEIGHT_DECAY, foreach=False)
    for batch in tokens:
        optimizer.zero_grad()
        losses(model, batch)[1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    for key, value in tessera_names(dict(model.named_parameters()), config).items():
        expected["trained/" + key] = value

    versions = {"made_by": "tests/reference/models.py", "torch": torch.__version__,
                "transformers": transformers.__version__, "python": sys.version.split()[0]}
    save_file(expected, folder / "expected.safetensors", metadata=versions)
    for file in folder.iterdir():
        file.chmod(0o644)
    print(name, "loss", float(expected["loss"]), "balance", float(expected["balance_loss"]))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "models"
    for name, config in models().items():
        write(name, config, root / name)


if __name__ == "__main__":
    main()
