"""The options that all comparisons share."""

import argparse
import os
import pathlib
import sys

from match.environment import peer_environment

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PEERS = REPOSITORY / "bench/compare/peers"


def parser(description, rounds=10):
    """The options of every comparison."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Run it with a Python that has the peers' packages, or name one with --python.")
    result.add_argument("--rounds", type=positive, default=rounds,
                        help=f"turns of each side ({rounds})")
    result.add_argument("--json", action="store_true", help="print one JSON object")
    result.add_argument("--peers", nargs="+", metavar="NAME", help="only the peers so named")
    result.add_argument("--tessera", type=pathlib.Path, help="the program",
                        default=os.environ.get("TESSERA", REPOSITORY / "build/release/src/cli/tessera"))
    result.add_argument("--tuned-memory", action="store_true", help="set the C library so that PyTorch "
                        "keeps its memory, in huge pages, instead of as its users run it; on a device, "
                        "let PyTorch's segments of memory grow")
    result.add_argument("--python", default=sys.executable, help="the peers' Python")
    result.set_defaults(device="cpu", one_after_the_other=False)
    return result


def match_parser(description):
    """The options of those whose sides are warm and take turns."""
    result = parser(description)
    result.add_argument("--warmup", type=positive, default=2, help="repeats before the first turn (2)")
    result.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)),
                        help="of each side (all cores)")
    result.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="what both sides compute on (cpu)")
    return result


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def chosen(peers, options):
    """Of a dictionary of peers those that --peers names, all without it."""
    unknown = sorted(set(options.peers or ()) - set(peers))
    if unknown:
        raise SystemExit(f"there is no peer {unknown[0]}; there are {', '.join(peers)}")
    return {name: peers[name] for name in (options.peers or peers)}


def tessera(options, *words, repeats="--repeats"):
    """Tessera's command for a match: one run more than there are rounds, so that it waits after the
    last and its memory can be read. Where the sides do not take turns, as many runs as rounds."""
    turns = not options.one_after_the_other
    return [options.tessera, "bench", *words, repeats, options.rounds + turns, "--warmup",
            options.warmup, "--threads", options.threads, *(["--turns"] if turns else []), "--json"]


def tessera_idle(options):
    """Tessera's command for as good as nothing; while it waits for its turn the program and its
    libraries are all that it has in memory. None where another memory is compared than the processor's."""
    if options.device != "cpu" or options.one_after_the_other:
        return None
    return [options.tessera, "bench", "attention", "--tokens", 1, "--heads", 1, "--kv-heads", 1,
            "--head-size", 2, "--repeats", 1, "--warmup", 0, "--threads", options.threads, "--turns"]


def peer(options, script, *words):
    """A peer's command for a match."""
    settings = [f"{name}={value}" for name, value in peer_environment(options).items()]
    repeats = ["--repeats", options.rounds] if options.one_after_the_other else []
    return [*(["env", *settings] if settings else []), options.python, PEERS / script, "--warmup",
            options.warmup, "--threads", options.threads, "--device", options.device, *repeats, *words]


def add_sizes(parser, sizes):
    """An option for each of a dictionary of default sizes."""
    for name, default in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=positive, default=default,
                            help=f"({default})")


def size_words(options, sizes):
    """The sizes as both sides' commands take them."""
    return [word for name in sizes
            for word in ("--" + name.replace("_", "-"), getattr(options, name))]
