"""PyTorch's attention, causal, forward and backward, whole or within documents of equal length."""

import time

import torch
import torch.nn.functional as F

import setting


def causal(tokens):
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def document_mask(tokens, documents):
    """[tokens, tokens], true where a token attends: backwards, within its document."""
    document = torch.arange(tokens) // (tokens // documents)
    return (document[:, None] == document[None, :]).tril()


def masked(tokens, documents):
    """What transformers does with packed documents: a mask over all pairs."""
    mask = document_mask(tokens, documents)
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


def by_document(tokens, documents):
    """A call for each document: nothing masked is computed."""
    attend = causal(tokens)
    length = tokens // documents
    return lambda q, k, v: torch.cat(
        [attend(*part) for part in zip(*(x.split(length, dim=2) for x in (q, k, v)))], dim=2)


IMPLEMENTATIONS = {"sdpa": lambda tokens, documents: causal(tokens), "sdpa-masked": masked,
                   "sdpa-by-document": by_document}


def main():
    parser = setting.arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=16)
    parser.add_argument("--head-size", type=int, default=128)
    parser.add_argument("--documents", type=int, default=1)
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--implementation", choices=IMPLEMENTATIONS, default="sdpa")
    options = parser.parse_args()
    if options.implementation == "sdpa" and options.documents != 1:
        raise SystemExit("sdpa alone knows no documents: choose another --implementation")
    if options.tokens % options.documents:
        raise SystemExit(f"{options.tokens} tokens do not make {options.documents} equal documents")
    setting.prepare(options.threads)
    idle = setting.resident_bytes()

    def states(heads):
        # As a model has them: [batch, tokens, heads, size], seen as [batch, heads, tokens, size].
        x = torch.randn(1, options.tokens, heads, options.head_size)
        return x.to(setting.WEIGHTS[options.precision]).transpose(1, 2).requires_grad_()

    inputs = [states(options.heads), states(options.kv_heads), states(options.kv_heads)]
    output_gradient = states(options.heads).detach()
    attend = IMPLEMENTATIONS[options.implementation](options.tokens, options.documents)

    def forward_backward():
        for x in inputs:
            x.grad = None
        begin = time.perf_counter()
        output = attend(*inputs)
        middle = time.perf_counter()
        output.backward(output_gradient)
        end = time.perf_counter()
        return dict(forward_seconds=middle - begin, forward_backward_seconds=end - begin)

    query, key, _ = inputs
    sizes = dict(tokens=query.shape[2], heads=query.shape[1], kv_heads=key.shape[1],
                 head_size=query.shape[3], documents=options.documents)
    setting.take_turns(forward_backward, options.warmup, idle_memory_bytes=idle, sizes=sizes)


if __name__ == "__main__":
    main()
