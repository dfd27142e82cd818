"""transformers' OLMoE block, forward and backward."""

import torch
from transformers import OlmoeConfig
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock

import experts
import setting


def build(options):
    config = OlmoeConfig(
        hidden_size=options.hidden, intermediate_size=options.expert_size,
        num_experts=options.experts, num_experts_per_tok=options.experts_per_token,
        num_attention_heads=1)
    config._experts_implementation = options.experts_implementation
    block = OlmoeSparseMoeBlock(config)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return block.to(setting.WEIGHTS[options.precision]).train()


def main():
    parser = setting.arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--experts-per-token", type=int, default=8)
    parser.add_argument("--expert-size", type=int, default=1024)
    parser.add_argument("--precision", choices=setting.WEIGHTS, default="autocast")
    parser.add_argument("--experts-implementation", choices=experts.IMPLEMENTATIONS,
                        default="grouped_mm")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    device = setting.prepare(options)
    idle = setting.resident_bytes()

    stream = torch.float32 if options.precision == "f32" else torch.bfloat16
    shape = (1, options.tokens, options.hidden)
    with torch.device(device.name):
        block = build(options)
        x = torch.randn(shape, dtype=stream, requires_grad=True)
        output_gradient = torch.randn(shape, dtype=stream)
    call = torch.compile(block) if options.compile else block

    def forward_backward():
        block.zero_grad(set_to_none=True)
        x.grad = None
        begin = device.clock()
        with setting.precision_context(options.precision, device):
            output = call(x)
        middle = device.clock()
        output.backward(output_gradient.to(output.dtype))
        end = device.clock()
        return dict(forward_seconds=middle - begin, forward_backward_seconds=end - begin)

    sizes = dict(tokens=x.shape[1], hidden=x.shape[2], experts=block.gate.num_experts,
                 experts_per_token=block.gate.top_k, expert_size=block.experts.down_proj.shape[2])
    setting.take_turns(forward_backward, options.warmup, device, idle_memory_bytes=idle, sizes=sizes,
                       parameters=sum(p.numel() for p in block.parameters()))


if __name__ == "__main__":
    main()
