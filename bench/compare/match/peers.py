"""Which settings of PyTorch stand against Tessera."""

# transformers' own, and one with bf16 products where the weights are f32 (peers/experts.py).
EXPERTS_IMPLEMENTATIONS = ("eager", "grouped_mm", "grouped_mm_bf16", "batched_mm")
# batched_mm copies an expert's weights for every token that chose it; above this it is not started, since
# a machine short of memory would stop answering before it refused.
LARGEST_GATHERED_BYTES = 4 << 30


def too_large(name, tokens, experts_per_token, hidden, expert_size):
    """Why the peer of settings() so called cannot run at these sizes; None if it can."""
    _, weights, kind = name.split("/")
    entry_bytes = 2 if weights == "bf16" else 4  # under autocast too, which leaves copies as they are
    gathered = tokens * experts_per_token * 3 * hidden * expert_size * entry_bytes
    if kind != "batched_mm" or gathered <= LARGEST_GATHERED_BYTES:
        return None
    return f"not run: it would copy {gathered / 2**30:.0f} GiB of weights for each layer"


def settings(precision, experts=False):
    """The peers of a training step or a part of one, by name their options: eager and compiled, f32
    weights under bf16 autocast and everything in bf16 (or all in f32), and where there are `experts`
    each implementation of them."""
    precisions = ["autocast", "bf16"] if precision == "bf16" else ["f32"]
    return {"/".join([mode, weights, *([kind] if kind else [])]):
            [*flag, "--precision", weights, *(["--experts-implementation", kind] if kind else [])]
            for kind in (EXPERTS_IMPLEMENTATIONS if experts else [""])
            for mode, flag in {"eager": [], "compiled": ["--compile"]}.items()
            for weights in precisions
            if kind != "grouped_mm_bf16" or weights == "autocast"}
