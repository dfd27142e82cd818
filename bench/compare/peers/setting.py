"""What every PyTorch side of the comparison shares: what computes fastest, and taking turns."""

import argparse
import contextlib
import json
import os
import sys

import torch


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--warmup", type=int, default=2, help="repeats before the first turn")
    return parser


def prepare(threads):
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if "transformers" in sys.modules:
        sys.modules["transformers"].logging.set_verbosity_error()


# Weights in f32 with autocast are mixed-precision training as PyTorch documents it, and what Tessera
# computes. Weights, gradients and moments all in bf16 are less work on numbers that lose small
# updates: a peer that must be beaten too, though nobody should train so.
WEIGHTS = {"autocast": torch.float32, "bf16": torch.bfloat16, "f32": torch.float32}


def precision_context(precision):
    if precision == "autocast":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def take_turns(measure, warmup, **facts):
    """Warms up; then says "turn", waits for a line on standard input and measures, until there are no
    more lines; last prints a JSON object of `facts` and of what `measure` gave, by key a list."""
    for _ in range(warmup):
        measure()
    turns = []
    print("turn", flush=True)
    for _ in sys.stdin:
        turns.append(measure())
        print("turn", flush=True)
    lists = {key: [turn[key] for turn in turns] for key in (turns[0] if turns else ())}
    # Only where it was imported: it takes memory.
    versions = {name: sys.modules[name].__version__ for name in ("torch", "transformers")
                if name in sys.modules}
    print(json.dumps(facts | lists | versions), flush=True)
