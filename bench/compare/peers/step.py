"""PyTorch's training step for a configuration of Tessera: forward, backward, clipping and AdamW."""

import pathlib

import numpy
import torch

import configuration
import experts
import setting
from model import build

def parameter_count(model):
    """What Tessera counts: biases that balance routers are buffers to transformers."""
    biases = [buffer for name, buffer in model.named_buffers() if name.endswith("balancing_biases")]
    return sum(values.numel() for values in (*model.parameters(), *biases))


def decay_groups(model, decay):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [dict(params=matrices, weight_decay=decay), dict(params=vectors, weight_decay=0.0)]


def batches(config, sequences, data):
    """The tokens of a step, [sequences, context] a micro-batch, the same in every step: random ones, or
    all that `tessera prepare` wrote to the folder `data`, which must be as many."""
    count, context = config["train"]["global_batch"], config["data"]["context"]
    if count % sequences:
        raise SystemExit(f"a step of {count} sequences does not divide into micro-batches of {sequences}")
    if data:
        shards = sorted(pathlib.Path(data).glob("train-*.npy"))
        tokens = torch.from_numpy(numpy.concatenate([numpy.load(shard) for shard in shards]).astype("int64"))
        if tokens.shape != (count, context):
            raise SystemExit(f"{data} has {tuple(tokens.shape)} tokens where {(count, context)} are due")
    else:
        tokens = torch.randint(config["model"]["vocabulary_size"], (count, context))
    return tokens.reshape(count // sequences, sequences, context)


class Step:
    """A training step in two parts. Its losses stay on the device, so that nothing waits for them."""

    def __init__(self, config, options, device):
        self.precision, self.device = options.precision, device
        optimizer = config["optimizer"]
        self.clip_norm = optimizer.get("clip_norm", 1.0)
        with torch.device(device.name):
            self.model = build(config, options)
        self.batches = batches(config, options.micro_batch or config["train"]["micro_batch"],
                               options.data).to(device.name)
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
        between = self.device.mark()  # waits for nothing
        self.update()
        times = dict(seconds=self.device.clock() - begin)
        if self.device.name == "cpu":  # where a mark is a time like another
            times |= dict(forward_backward_seconds=between - begin)
        return times


def main():
    parser = setting.arguments(__doc__)
    configuration.add_arguments(parser)
    parser.add_argument("--precision", choices=setting.WEIGHTS, default="autocast")
    parser.add_argument("--experts-implementation", choices=experts.IMPLEMENTATIONS,
                        default="grouped_mm")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--weights", help="a folder that model.py wrote, instead of random weights")
    parser.add_argument("--data", help="a folder of as many prepared tokens as a step has, instead of "
                        "random ones")
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
                 parameters=parameter_count(step.model))
    if options.repeats:
        parts = dict(forward_backward=step.forward_backward, update=step.update)
        setting.run_on(parts, options.warmup, options.repeats, device, **facts)
    else:
        setting.take_turns(step.timed, options.warmup, device, **facts)


if __name__ == "__main__":
    main()
