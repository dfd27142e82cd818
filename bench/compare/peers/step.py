"""PyTorch's training step for a configuration of Tessera: forward, backward, clipping and AdamW."""

import pathlib
import time
import tomllib

import torch
import transformers

import experts
import setting

FAMILIES = {"llama": transformers.LlamaConfig, "olmoe": transformers.OlmoeConfig}
# Tessera's keys of [model] and what transformers calls them.
MODEL_KEYS = {
    "layers": "num_hidden_layers", "hidden_size": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "feed_forward_size": "intermediate_size",
    "vocabulary_size": "vocab_size", "tied_head": "tie_word_embeddings", "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok", "expert_size": "intermediate_size",
}
# Without these the two would not compute the same.
REQUIRED = {"llama": {}, "olmoe": {"balance_form": "pooled", "router_z_coefficient": 0}}


def model_config(config):
    model = dict(config["model"])
    family = model.pop("family")
    if family not in FAMILIES:
        raise SystemExit(f"model.family is {family}; this comparison knows {', '.join(FAMILIES)}")
    for key, value in REQUIRED[family].items():
        if model.pop(key, None) != value:
            raise SystemExit(f"transformers' {family} needs model.{key} = {value!r}")
    theta = model.pop("rope_theta", 1e4 if family == "olmoe" else 5e5)
    unknown = sorted(set(model) - set(MODEL_KEYS))
    if unknown:
        raise SystemExit(f"this comparison does not know what model.{unknown[0]} is to transformers")
    sizes = {MODEL_KEYS[key]: value for key, value in model.items()}
    if family == "olmoe":
        sizes |= dict(output_router_logits=True, router_aux_loss_coef=0.01)
    return FAMILIES[family](
        **sizes, max_position_embeddings=config["data"]["context"], use_cache=False,
        pad_token_id=None, bos_token_id=None, eos_token_id=None,
        rope_parameters=dict(rope_type="default", rope_theta=theta))


def build(config, options):
    settings = model_config(config)
    settings._attn_implementation = "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(settings)
    if config["model"].get("experts"):  # after the model is made, which knows its own names only
        model.config._experts_implementation = options.experts_implementation
    return model.to(setting.WEIGHTS[options.precision]).train()


def decay_groups(model, decay):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [dict(params=matrices, weight_decay=decay), dict(params=vectors, weight_decay=0.0)]


def main():
    parser = setting.arguments(__doc__)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--precision", choices=setting.WEIGHTS, default="autocast")
    parser.add_argument("--experts-implementation", choices=experts.IMPLEMENTATIONS,
                        default="grouped_mm")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    config = tomllib.loads(options.config.read_text())
    setting.prepare(options.threads)
    idle = setting.resident_bytes()

    model = build(config, options)
    train, optimizer = config["train"], config["optimizer"]
    if train["micro_batch"] != train["global_batch"]:
        raise SystemExit("this comparison takes a step of one micro-batch: set train.micro_batch to "
                         f"train.global_batch, {train['global_batch']}")
    adamw = torch.optim.AdamW(
        decay_groups(model, optimizer["weight_decay"]), lr=optimizer["learning_rate"],
        betas=(optimizer.get("beta1", 0.9), optimizer["beta2"]), fused=True)
    tokens = torch.randint(model.config.vocab_size, (train["micro_batch"], config["data"]["context"]))
    call = torch.compile(model) if options.compile else model

    losses = []  # of all steps, the warm-up's too

    def step():
        begin = time.perf_counter()
        with setting.precision_context(options.precision):
            loss = call(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip_norm"])
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        losses.append(loss.item())
        return dict(seconds=time.perf_counter() - begin)

    setting.take_turns(step, options.warmup, idle_memory_bytes=idle, tokens=tokens.numel(),
                       losses=losses, parameters=sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
