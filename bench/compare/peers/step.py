"""PyTorch's training step for a configuration of Tessera: forward, backward, clipping and AdamW."""

import torch
import transformers

import configuration
import experts
import setting

FAMILIES = {"llama": transformers.LlamaConfig, "olmo": transformers.OlmoConfig,
            "olmoe": transformers.OlmoeConfig}
# What a family of Tessera is to transformers where the configuration does not say otherwise.
FAMILY_KEYS = {"llama": dict(rope_theta=5e5), "olmo": dict(rope_theta=1e4, tied_head=True),
               "olmoe": dict(rope_theta=1e4)}
# Tessera's keys of [model] and what transformers calls them.
MODEL_KEYS = {
    "layers": "num_hidden_layers", "hidden_size": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "feed_forward_size": "intermediate_size",
    "vocabulary_size": "vocab_size", "tied_head": "tie_word_embeddings", "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok", "expert_size": "intermediate_size",
}
# Without these the two would not compute the same.
REQUIRED = {"llama": {}, "olmo": {}, "olmoe": {"balance_form": "pooled", "router_z_coefficient": 0}}


def model_config(config):
    model = dict(config["model"])
    family = model.pop("family")
    if family not in FAMILIES:
        raise SystemExit(f"model.family is {family}; this comparison knows {', '.join(FAMILIES)}")
    for key, value in REQUIRED[family].items():
        if model.pop(key, None) != value:
            raise SystemExit(f"transformers' {family} needs model.{key} = {value!r}")
    model = FAMILY_KEYS[family] | model
    theta = model.pop("rope_theta")
    model.pop("forced_uniform_routing", None)  # of the model, see build()
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
    if config["model"].get("forced_uniform_routing"):
        experts.force_uniform_routing(model)
    return model.to(setting.WEIGHTS[options.precision]).train()


def decay_groups(model, decay):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [dict(params=matrices, weight_decay=decay), dict(params=vectors, weight_decay=0.0)]


def random_batches(config, sequences):
    """The tokens of a step, [sequences, context] a micro-batch, the same in every step."""
    count = config["train"]["global_batch"]
    if count % sequences:
        raise SystemExit(f"a step of {count} sequences does not divide into micro-batches of {sequences}")
    shape = (count // sequences, sequences, config["data"]["context"])
    return torch.randint(config["model"]["vocabulary_size"], shape)


class Step:
    """A training step in two parts. Its losses stay on the device, so that nothing waits for them."""

    def __init__(self, config, options, device):
        self.precision, self.device = options.precision, device
        optimizer = config["optimizer"]
        self.clip_norm = optimizer.get("clip_norm", 1.0)
        with torch.device(device.name):
            self.model = build(config, options)
            self.batches = random_batches(config, options.micro_batch or config["train"]["micro_batch"])
        self.call = torch.compile(self.model) if options.compile else self.model
        self.adamw = torch.optim.AdamW(
            decay_groups(self.model, optimizer["weight_decay"]), lr=optimizer["learning_rate"],
            betas=(optimizer.get("beta1", 0.9), optimizer.get("beta2", 0.99)), fused=True)
        self.losses = []  # of all steps, the warm-up's too

    def forward_backward(self):
        """Both passes of each micro-batch. The gradient is that of the mean over all of them."""
        total = 0
        for tokens in self.batches:
            with setting.precision_context(self.precision, self.device):
                loss = self.call(input_ids=tokens, labels=tokens).loss / len(self.batches)
            loss.backward()
            total = total + loss.detach()
        self.losses.append(total)

    def update(self):
        if self.clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)

    def timed(self):
        begin = self.device.clock()
        self.forward_backward()
        self.update()
        return dict(seconds=self.device.clock() - begin)


def main():
    parser = setting.arguments(__doc__)
    configuration.add_arguments(parser)
    parser.add_argument("--precision", choices=setting.WEIGHTS, default="autocast")
    parser.add_argument("--experts-implementation", choices=experts.IMPLEMENTATIONS,
                        default="grouped_mm")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences (the configuration's)")
    parser.add_argument("--repeats", type=int, default=0, help="steps one after the other, instead of turns")
    options = parser.parse_args()
    config = configuration.load(options)
    device = setting.prepare(options)
    if config["train"].get("tf32"):
        torch.set_float32_matmul_precision("high")
    idle = setting.resident_bytes()
    step = Step(config, options, device)
    facts = dict(idle_memory_bytes=idle, tokens=step.batches.numel(), losses=step.losses,
                 parameters=sum(p.numel() for p in step.model.parameters()))
    if options.repeats:
        parts = dict(forward_backward=step.forward_backward, update=step.update)
        setting.run_on(parts, options.warmup, options.repeats, device, **facts)
    else:
        setting.take_turns(step.timed, options.warmup, device, **facts)


if __name__ == "__main__":
    main()
