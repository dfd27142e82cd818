"""The model of transformers that a configuration of Tessera means. Run, it writes one with random weights
to a folder: `model.py CONFIG [--set ...] --output FOLDER`."""

import argparse

import torch
import transformers

import configuration
import experts
import setting

FAMILIES = {"llama": transformers.LlamaConfig, "olmo": transformers.OlmoConfig,
            "olmoe": transformers.OlmoeConfig, "zaya": transformers.ZayaConfig}
# What a family of Tessera is to transformers where the configuration does not say otherwise.
FAMILY_KEYS = {"llama": dict(rope_theta=5e5), "olmo": dict(rope_theta=1e4, tied_head=True),
               "olmoe": dict(rope_theta=1e4), "zaya": dict(rope_theta=1e4)}
# Tessera's keys of [model] and what transformers calls them, in all families and in one.
MODEL_KEYS = {
    "layers": "num_hidden_layers", "hidden_size": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "feed_forward_size": "intermediate_size",
    "vocabulary_size": "vocab_size", "tied_head": "tie_word_embeddings", "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok", "expert_size": "intermediate_size",
}
KEYS_OF_FAMILY = {"zaya": {"expert_size": "moe_intermediate_size", "router_size": "router_hidden_size"}}
# Without these the two would not compute the same.
REQUIRED = {"llama": {}, "olmo": {}, "olmoe": {"balance_form": "pooled", "router_z_coefficient": 0},
            "zaya": {}}


def rotary(family, theta):
    default = dict(rope_type="default", rope_theta=theta)
    if family != "zaya":
        return default
    return dict(hybrid=default | dict(partial_rotary_factor=0.5))  # by the type of layers


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
    names = MODEL_KEYS | KEYS_OF_FAMILY.get(family, {})
    unknown = sorted(set(model) - set(names))
    if unknown:
        raise SystemExit(f"this comparison does not know what model.{unknown[0]} is to transformers")
    sizes = {names[key]: value for key, value in model.items()}
    if family == "olmoe":
        sizes |= dict(output_router_logits=True, router_aux_loss_coef=0.01)
    return FAMILIES[family](
        **sizes, max_position_embeddings=config["data"]["context"], use_cache=False,
        pad_token_id=None, bos_token_id=None, eos_token_id=None,
        rope_parameters=rotary(family, theta))


def build(config, options):
    """The model with random weights, or with those that write() wrote to the folder options.weights."""
    settings = model_config(config)
    settings._attn_implementation = "sdpa"
    if options.weights:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.weights, config=settings)
    else:
        model = transformers.AutoModelForCausalLM.from_config(settings)
    if config["model"].get("experts"):  # after the model is made, which knows its own names only
        model.config._experts_implementation = options.experts_implementation
    if config["model"].get("forced_uniform_routing"):
        experts.force_uniform_routing(model)
    return model.to(setting.WEIGHTS[options.precision]).train()


def write(config, folder):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(model_config(config))
    for name, parameter in model.named_parameters():
        if name.endswith("qk_norm.temp"):  # zero in an untrained ZAYA1: no key would differ from another
            torch.nn.init.ones_(parameter)
    model.save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    configuration.add_arguments(parser)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    write(configuration.load(options), options.output)


if __name__ == "__main__":
    main()
