"""What a comparison prints: a table for people or one JSON object."""

import json
import os
import shlex
import sys

from match.environment import peer_environment, waiting
from match.facts import PACKAGES
from match.play import label

# What decides how fast matrix products are.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def processor():
    """The processor's name and which of FEATURES it has."""
    fields = {}
    with open("/proc/cpuinfo") as info:
        for line in info:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    return dict(name=fields.get("model name", "unknown"), cores=len(os.sched_getaffinity(0)),
                features={feature: feature in flags for feature in FEATURES})


def seconds(value):
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def gibibytes(value):
    return f"{value / 2**30:.2f} GiB"


def memory(row, side):
    """The peak, and how far it is above what the side's program takes before it computes. Of a device,
    what the side takes of it, and the part that its tensors have."""
    peak, idle = (row.get(f"{side}_{what}_memory_bytes") for what in ("peak", "idle"))
    tensors = row.get(f"{side}_tensor_bytes")
    if peak is None:
        return ""
    if "accelerator" in row:
        return gibibytes(peak) + (f" ({gibibytes(tensors)} in tensors)" if tensors else "")
    return gibibytes(peak) + (f" ({gibibytes(peak - idle)} above idle)" if idle else "")


def lines(row):
    """The table's lines of one match: one for each time that was compared."""
    if "failure" in row:
        yield [label(row), "", "", "", "", "", row["failure"]]
        return
    for key, time in row["times"].items():
        ratio = time["ratio"]
        what = key.removesuffix("seconds").rstrip("_").replace("_", " + ")
        yield [label(row) + (f", {what}" if what else ""),
               seconds(time["ours"]["median"]), seconds(time["theirs"]["median"]),
               f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
               memory(row, "our"), memory(row, "their"), "; ".join(remarks(row))]


def tokens(value):
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"


def remarks(row):
    yield f"{row['rounds']} rounds"
    if "tokens_per_second" in row:
        ours, theirs = (tokens(row["tokens_per_second"][side]) for side in ("ours", "theirs"))
        yield f"{ours} tokens/s, peer {theirs}"
    if "mfu_of_hardware_peak" in row:
        yield (f"MFU {row['mfu_of_hardware_peak']:.1%} of the hardware file's peak, "
               f"{row['mfu']:.1%} of the measured")
    if row.get("attended_share", 1) < 1:
        yield f"{row['attended_share']:.1%} of the causal pairs attended"


def table(rows):
    """A table of Markdown, its columns aligned."""
    cells = [["peer", "Tessera", "peer", "ratio (10th to 90th)", "memory", "peer's memory", ""],
             *(line for row in rows for line in lines(row))]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    padded = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
              for line in cells]
    return "\n".join([padded[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|",
                      *padded[1:]])


def report(rows, options, **facts):
    """Prints the rows: `ratio` is the peer's time over Tessera's, above 1 where Tessera is faster."""
    machine = processor() | dict(threads=options.threads)
    command = shlex.join(sys.argv)
    if options.json:
        print(json.dumps(dict(command=command, device=options.device, processor=machine,
                              peer_environment=peer_environment(options), waiting=waiting(),
                              rows=rows) | facts, indent=1))
        return
    features = ", ".join(("" if has else "no ") + name for name, has in machine["features"].items())
    print(f"processor  {machine['name']}, {machine['threads']} threads ({features})")
    accelerators = {row["accelerator"] for row in rows if "accelerator" in row}
    if accelerators:
        print(f"device     {', '.join(sorted(accelerators))}")
    print(f"peer       {'; '.join(sorted(set(map(versions, rows)) - {''})) or 'none ran'}")
    print(f"           with {assignments(peer_environment(options)) or 'the C library as it is set up'}")
    print(f"waiting    {assignments(waiting()) or 'threads of each side by its own default'}")
    print(f"command    {command}")
    for name, value in facts.items():
        print(f"{name:<10} {value}")
    print("ratio      peer's time over Tessera's, " + (
        "of the medians; the sides ran one after the other\n" if options.one_after_the_other else
        "median of the rounds' pairs\n"))
    print(table(rows))


def versions(row):
    return ", ".join(f"{name} {row[name]}" for name in PACKAGES if name in row)


def assignments(environment):
    return " ".join(f"{name}={value}" for name, value in environment.items())


def exit_status(rows, options):
    """1 where nothing was compared, or not everything that --peers names; otherwise 0."""
    compared = {row["peer"] for row in rows if "times" in row}
    without = {row["peer"] for row in rows if "failure" in row}
    asked = set(options.peers or ())
    missing = sorted(asked - compared | asked & without)
    if missing:
        print(f"not compared: {', '.join(missing)}", file=sys.stderr)
    return int(not compared or bool(missing))
