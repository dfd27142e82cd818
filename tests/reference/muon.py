"""Muon and the AdamW beside it, step by step from given weights and gradients.

Writes tests/fixtures/muon/expected.safetensors:

  learning_rate          f64 [steps]: PEAK after a linear warm-up of WARMUP steps
  initial/NAME           f32, the weights before the first step
  gradient/NAME          f32 [steps, ...]
  f64/...                f64, computed in f64:
    weight/NAME          [steps, ...] after each step
    momentum/NAME        [steps, ...] of the matrices of MATRICES, which Muon updates
    first_moment/NAME, second_moment/NAME   [steps, ...] of the tensors of OTHERS, which AdamW does
    newton_schulz/NAME   of the first gradient
  f32/...                f32, the same computed in f32
  bf16/weight/NAME, bf16/newton_schulz/NAME   f32, of MATRICES: Newton-Schulz in bf16 as in the
                         original, all else in f32

  m = 0.95 m + g;  u = g + 0.95 m
  X = u / |u| (0 if u is), transposed if it has more rows than columns, and 5 times:
  A = X X';  X = 3.4445 X + (-4.775 A + 2.0315 A A) X
  w = w (1 - rate * decay) - rate * 0.2 sqrt(max(rows, columns)) X

AdamW has betas 0.9 and 0.95, corrected for their start, epsilon 1e-8, and the same rate and decay.
The decay is 0.1 for every weight. The matrix "idle" has no gradient in the first two steps, so X is
0 there. The gradients of "faint" are 1e-12 of the others.

The script ends with an error if torch.optim.Muon (adjust_lr_fn "match_rms_adamw") and
torch.optim.AdamW give other weights. That Muon differs in three ways:

  - it keeps 0.05 m, and u is 0.05 of ours, which X does not see;
  - it divides by max(|u|, eps); eps is 1e-30 here, where it is 1e-7 by default;
  - it always computes X in bf16, and in another order: for f64 the script takes the rounding out.

Usage, with torch >= 2.9 installed (the version stands in the file's metadata):

  python3 tests/reference/muon.py
"""

import contextlib
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

STEPS, WARMUP, PEAK, DECAY = 10, 3, 0.02, 0.1
MOMENTUM, BETAS, EPSILON = 0.95, (0.9, 0.95), 1e-8
A, B, C, ROUNDS, LEAST = 3.4445, -4.7750, 2.0315, 5, 1e-30
MATRICES = {"wide": (8, 18), "tall": (18, 6), "square": (10, 10), "row": (1, 12), "idle": (6, 8),
            "faint": (7, 9)}
OTHERS = {"embedding": (10, 6), "norm": (8,), "convolution": (6, 1, 2)}


def rates():
    return [PEAK * min(step / WARMUP, 1) for step in range(1, STEPS + 1)]


def newton_schulz(u, dtype):
    x = u.to(dtype)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    norm = x.norm()
    x = x / norm if norm > 0 else x
    for _ in range(ROUNDS):
        a = x @ x.T
        x = A * x + (B * a + C * (a @ a)) @ x
    return (x.T if tall else x).to(u.dtype).contiguous()


def run_muon(weight, gradients, working):
    """Weights and momentum after each step, in the weight's type; Newton-Schulz in `working`."""
    momentum, weights, momenta = torch.zeros_like(weight), [], []
    scale = 0.2 * math.sqrt(max(weight.shape))
    for rate, gradient in zip(rates(), gradients):
        momentum = MOMENTUM * momentum + gradient
        update = newton_schulz(gradient + MOMENTUM * momentum, working)
        weight = weight * (1 - rate * DECAY) - rate * scale * update
        weights.append(weight)
        momenta.append(momentum)
    return torch.stack(weights), torch.stack(momenta)


def run_adamw(weight, gradients):
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    weights, firsts, seconds = [], [], []
    for step, (rate, gradient) in enumerate(zip(rates(), gradients), start=1):
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient * gradient
        mean, square = first / (1 - BETAS[0] ** step), second / (1 - BETAS[1] ** step)
        weight = weight * (1 - rate * DECAY) - rate * mean / (square.sqrt() + EPSILON)
        weights.append(weight)
        firsts.append(first)
        seconds.append(second)
    return torch.stack(weights), torch.stack(firsts), torch.stack(seconds)


@contextlib.contextmanager
def no_rounding():
    """torch.optim.Muon rounds u with Tensor.bfloat16: within this, it does not."""
    torch.Tensor.bfloat16 = lambda tensor: tensor.clone()
    try:
        yield
    finally:
        del torch.Tensor.bfloat16


def run_torch(weight, gradients, make):
    """Weights after each step of an optimizer of torch, and its state."""
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = make([parameter])
    weights = []
    for rate, gradient in zip(rates(), gradients):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = gradient.clone()
        optimizer.step()
        weights.append(parameter.detach().clone())
    return torch.stack(weights), optimizer.state[parameter]


def near(what, found, expected, tolerance):
    error = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    if not error <= tolerance:
        sys.exit(f"{what}: off by {error:.1e} of the largest, more than {tolerance}")
    return error


def torch_muon(parameters):
    return torch.optim.Muon(parameters, weight_decay=DECAY, momentum=MOMENTUM, nesterov=True,
                            ns_coefficients=(A, B, C), ns_steps=ROUNDS, eps=LEAST,
                            adjust_lr_fn="match_rms_adamw")


def torch_adamw(parameters):
    return torch.optim.AdamW(parameters, betas=BETAS, eps=EPSILON, weight_decay=DECAY,
                             foreach=False)


def check_against_torch(name, weight, gradients, expected):
    """`weight` and `gradients` in f64."""
    found_name = f"{name} by torch"
    if name in OTHERS:
        found, state = run_torch(weight, gradients, torch_adamw)
        near(found_name, found, expected["f64/weight/" + name], 1e-13)
        near(found_name, state["exp_avg"], expected["f64/first_moment/" + name][-1], 1e-13)
        near(found_name, state["exp_avg_sq"], expected["f64/second_moment/" + name][-1], 1e-13)
        return
    with no_rounding():
        found, state = run_torch(weight, gradients, torch_muon)
    exact = near(found_name, found, expected["f64/weight/" + name], 1e-13)
    near(found_name, state["momentum_buffer"] / (1 - MOMENTUM),
         expected["f64/momentum/" + name][-1], 1e-13)
    found, _ = run_torch(weight.float(), gradients.float(), torch_muon)
    ours = expected["bf16/weight/" + name].double()
    rounded = near(found_name + " in bf16", found, ours, 0.01)
    rounding = near(name + " in bf16", ours, expected["f64/weight/" + name], 0.01)
    print(f"{name}: torch.optim.Muon is off by {exact:.1e} of the largest weight in f64, by "
          f"{rounded:.1e} in bf16; bf16 is off from f64 by {rounding:.1e}")


def random_tensors():
    generator = torch.Generator().manual_seed(11)
    for name, shape in (MATRICES | OTHERS).items():
        weight = 0.5 * torch.randn(shape, generator=generator)
        # Gradients of one direction with noise, as training has; their sizes differ by steps.
        common = torch.randn(shape, generator=generator)
        size = torch.tensor([10.0 ** (step % 4 - 2) for step in range(STEPS)])
        gradients = common + torch.randn((STEPS, *shape), generator=generator)
        gradients = gradients * size.view(-1, *[1] * len(shape))
        if name == "idle":
            gradients[:2] = 0
        if name == "faint":
            gradients *= 1e-12
        yield name, weight, gradients


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    expected = {"learning_rate": torch.tensor(rates(), dtype=torch.float64)}
    for name, initial, gradients in random_tensors():
        expected["initial/" + name], expected["gradient/" + name] = initial, gradients
        for dtype, prefix in [(torch.float64, "f64/"), (torch.float32, "f32/")]:
            weight, given = initial.to(dtype), gradients.to(dtype)
            if name in MATRICES:
                results = dict(zip(("weight", "momentum"), run_muon(weight, given, dtype)))
                results["newton_schulz"] = newton_schulz(given[0], dtype)
            else:
                results = dict(zip(("weight", "first_moment", "second_moment"),
                                   run_adamw(weight, given)))
            for part, values in results.items():
                expected[f"{prefix}{part}/{name}"] = values
                near(f"{prefix}{part}/{name}", values.double(), expected[f"f64/{part}/{name}"],
                     1e-4)
        if name in MATRICES:
            expected["bf16/weight/" + name] = run_muon(initial, gradients, torch.bfloat16)[0]
            expected["bf16/newton_schulz/" + name] = newton_schulz(gradients[0], torch.bfloat16)
        check_against_torch(name, initial.double(), gradients.double(), expected)

    folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "muon"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "expected.safetensors"
    save_file(expected, file, metadata={
        "made_by": "tests/reference/muon.py", "torch": torch.__version__,
        "python": sys.version.split()[0]})
    file.chmod(0o644)


if __name__ == "__main__":
    main()
