"""The two parts of scripts/compare_with_transformers that run in Python.

  python3 tests/reference/compare_loss.py make FAMILY FOLDER
      writes a small random model of FAMILY (olmo, olmoe, llama, mixtral, zaya) that knows 320 tokens
  python3 tests/reference/compare_loss.py loss FOLDER DATA
      prints transformers' mean cross-entropy, in nats a token, of the model in FOLDER over the
      held-out instances that `tessera prepare` wrote to DATA: every token but an instance's first,
      in f32

Needs torch, transformers and NumPy.
"""

import pathlib
import sys

import numpy
import safetensors
import torch
import transformers

SIZES = dict(vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=256, initializer_range=0.1, pad_token_id=None,
             bos_token_id=None, eos_token_id=256)
MODELS = {
    "olmo": lambda: transformers.OlmoConfig(**SIZES, intermediate_size=128, clip_qkv=1.0),
    "olmoe": lambda: transformers.OlmoeConfig(**SIZES, intermediate_size=32, num_experts=8,
                                              num_experts_per_tok=2),
    "llama": lambda: transformers.LlamaConfig(
        **SIZES, intermediate_size=128, num_key_value_heads=2, rope_parameters=dict(
            rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=64)),
    "mixtral": lambda: transformers.MixtralConfig(**SIZES, intermediate_size=32,
                                                  num_key_value_heads=2, num_local_experts=8),
    "zaya": lambda: transformers.ZayaConfig(**SIZES, moe_intermediate_size=32, num_experts=8,
                                            num_key_value_heads=2, head_dim=16,
                                            router_hidden_size=16),
}


def make(family, folder):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[family]())
    for name, parameter in model.named_parameters():
        if name.endswith("qk_norm.temp"):  # zero at first: no key would differ from another
            torch.nn.init.ones_(parameter)
    model.save_pretrained(folder)


def instances(folder):
    shards = sorted(pathlib.Path(folder).glob("held_out-*.npy"))
    if not shards:
        sys.exit(f"{folder} has no held-out shards")
    return numpy.concatenate([numpy.load(shard) for shard in shards]).astype(numpy.int64)


def restore_biases(model, file):
    """Transformers 5.24.0 sets the skip class's balancing bias of ZAYA1 to -1 when it loads one."""
    biases = {name: buffer for name, buffer in model.named_buffers()
              if name.endswith("balancing_biases")}
    if not biases:
        return
    with safetensors.safe_open(file, "pt") as saved:
        for name, buffer in biases.items():
            buffer.copy_(saved.get_tensor(name))


@torch.no_grad()
def loss(model_folder, data_folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            sys.exit(f"transformers finds {kind} in {model_folder}: {sorted(info[kind])}")
    restore_biases(model, pathlib.Path(model_folder) / "model.safetensors")
    model.eval()
    total, count = 0.0, 0
    for tokens in torch.from_numpy(instances(data_folder)).split(8):
        logits = model(tokens).logits[:, :-1].double()
        targets = tokens[:, 1:]
        total += torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
        count += targets.numel()
    print(repr(total / count))


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    command, first, second = sys.argv[1:]
    {"make": make, "loss": loss}[command](first, second)
