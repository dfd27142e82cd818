"""What every PyTorch side of the comparison shares: what computes fastest, and how it is measured."""

import argparse
import contextlib
import json
import os
import sys

import torch

from device import DEVICES, time_parts


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--warmup", type=int, default=2, help="repeats before those that count")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    return parser


def prepare(options):
    """Sets PyTorch up and gives the device. What is made `with torch.device(its name)` lies there."""
    device = DEVICES[options.device](torch)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if "transformers" in sys.modules:
        sys.modules["transformers"].logging.set_verbosity_error()
    return device


# Weights in f32 with autocast are mixed-precision training as PyTorch documents it, and what Tessera
# computes. Weights, gradients and moments all in bf16 are less work on numbers that lose small
# updates: a peer that must be beaten too, though nobody should train so.
WEIGHTS = {"autocast": torch.float32, "bf16": torch.bfloat16, "f32": torch.float32}


def precision_context(precision, device):
    if precision == "autocast":
        return torch.autocast(device.name, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def take_turns(measure, warmup, device, **facts):
    """Warms up; then says "turn", waits for a line on standard input and measures, until there are no
    more lines; last tells what `measure` gave, by key a list."""
    for _ in range(warmup):
        measure()
    device.forget_peak_memory()
    turns = []
    print("turn", flush=True)
    for _ in sys.stdin:
        turns.append(measure())
        print("turn", flush=True)
    tell(device, facts | {key: [turn[key] for turn in turns] for key in (turns[0] if turns else ())})


def run_on(parts, warmup, repeats, device, **facts):
    """Warms up, and tells how long the parts of a run took without turns (see time_parts())."""
    for _ in range(warmup):
        for part in parts.values():
            part()
    device.forget_peak_memory()
    lists = time_parts(device, parts, repeats)
    tell(device, facts | lists)


def tell(device, facts):
    """Prints a JSON object of `facts`, of the device and of versions; a tensor in it has one number."""
    # Only where it was imported: it takes memory.
    versions = {name: sys.modules[name].__version__ for name in ("torch", "transformers")
                if name in sys.modules}
    print(json.dumps(facts | device.facts() | versions, default=float), flush=True)
