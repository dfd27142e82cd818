"""PyTorch's attention, causal, forward and backward, whole or within documents of equal length."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import setting


def causal(*_):
    """PyTorch chooses the kernel."""
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def by_backend(backend):
    """The same with one library's kernel, and none other."""
    def make(*_):
        def attend(q, k, v):
            with sdpa_kernel(backend):
                return causal()(q, k, v)
        return attend
    return make


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
    attend = causal()
    length = tokens // documents
    return lambda q, k, v: torch.cat(
        [attend(*part) for part in zip(*(x.split(length, dim=2) for x in (q, k, v)))], dim=2)


def varlen(tokens, documents):
    """One call of flash attention for all documents, which are given by where they begin."""
    from torch.nn.attention.varlen import varlen_attn  # of PyTorch 2.10 and later
    length = tokens // documents
    begins = torch.arange(0, tokens + 1, length, dtype=torch.int32)

    def attend(q, k, v):
        rows = [x[0].transpose(0, 1) for x in (q, k, v)]  # [tokens, heads, size]
        output = varlen_attn(*rows, begins, begins, length, length, window_size=(-1, 0),
                             enable_gqa=q.shape[1] != k.shape[1])
        return output.transpose(0, 1)[None]
    return attend


def flex(tokens, documents):
    """FlexAttention, compiled, which leaves out blocks that the mask hides."""
    length = tokens // documents

    def attends(batch, head, query, key):
        return (query >= key) & (query // length == key // length)
    mask = create_block_mask(attends, None, None, tokens, tokens, device=torch.get_default_device())
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


IMPLEMENTATIONS = {"sdpa": causal, "sdpa-flash": by_backend(SDPBackend.FLASH_ATTENTION),
                   "sdpa-cudnn": by_backend(SDPBackend.CUDNN_ATTENTION), "sdpa-masked": masked,
                   "sdpa-by-document": by_document, "varlen": varlen, "flex": flex}
OF_ONE_DOCUMENT = ("sdpa", "sdpa-flash", "sdpa-cudnn")


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
    if options.implementation in OF_ONE_DOCUMENT and options.documents != 1:
        raise SystemExit(f"{options.implementation} knows no documents: choose another --implementation")
    if options.tokens % options.documents:
        raise SystemExit(f"{options.tokens} tokens do not make {options.documents} equal documents")
    device = setting.prepare(options)
    idle = setting.resident_bytes()

    def states(heads):
        # As a model has them: [batch, tokens, heads, size], seen as [batch, heads, tokens, size].
        x = torch.randn(1, options.tokens, heads, options.head_size)
        return x.to(setting.WEIGHTS[options.precision]).transpose(1, 2).requires_grad_()

    with torch.device(device.name):
        inputs = [states(options.heads), states(options.kv_heads), states(options.kv_heads)]
        output_gradient = states(options.heads).detach()
        attend = IMPLEMENTATIONS[options.implementation](options.tokens, options.documents)

    def forward_backward():
        for x in inputs:
            x.grad = None
        begin = device.clock()
        output = attend(*inputs)
        middle = device.clock()
        output.backward(output_gradient)
        end = device.clock()
        return dict(forward_seconds=middle - begin, forward_backward_seconds=end - begin)

    query, key, _ = inputs
    sizes = dict(tokens=query.shape[2], heads=query.shape[1], kv_heads=key.shape[1],
                 head_size=query.shape[3], documents=options.documents)
    setting.take_turns(forward_backward, options.warmup, device, idle_memory_bytes=idle, sizes=sizes)


if __name__ == "__main__":
    main()
