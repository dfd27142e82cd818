"""The environment of a match: what the options make of the peer's, and what the caller set for both sides."""

import os

# Tessera's pool asks for huge pages and keeps its memory from step to step. PyTorch takes its memory from
# the C library, which gives large pieces back and faults them in anew at every step: 340,000 page faults
# a step for a Llama of 11 M parameters. With the thresholds it keeps them (one fault a step, at an eighth
# more memory), and with the others they are huge pages.
TUNED_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
                      "glibc.malloc.trim_threshold=17179869184",
}

# How OpenMP's threads wait. Each side has its own default, unless the caller sets these for both.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


# On a device PyTorch keeps what it took by itself. Segments that grow leave fewer gaps in it.
TUNED_DEVICE_MEMORY = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def peer_environment(options):
    """What the peer's environment has beyond the caller's."""
    if not options.tuned_memory:
        return {}
    return TUNED_MEMORY if options.device == "cpu" else TUNED_DEVICE_MEMORY


def waiting():
    """Of WAITING those that the caller's environment sets, for both sides."""
    return {name: os.environ[name] for name in WAITING if name in os.environ}
