"""The keys of [shard] of each scheme of sharded data parallelism, as docs/sharding.md lists them. But ZeRO++ has its
second copy in int8 too, as ZeRO-topo's Table VII has it. So the two differ in their groups alone."""

ALL = {"weights": "all", "gradients": "all", "optimizer": "all"}
INTEGERS = {"weights_wire": "int8", "secondary_wire": "int8", "gradients_wire": "int4"}

SCHEMES = {
    "none": {},
    "zero-1": {"optimizer": "all"},
    "zero-2": {"gradients": "all", "optimizer": "all"},
    "zero-3": ALL,
    "hsdp": dict.fromkeys(ALL, "node"),
    "mics": dict.fromkeys(ALL, 2),
    "zero++": {**ALL, "secondary": "node", **INTEGERS},
    "zero-topo": {"weights": "pair", "gradients": "node", "optimizer": "all", "secondary": "pair", **INTEGERS},
}


def chosen_schemes(parser, names):
    """Returns the schemes of a list of names with commas. A name that is none ends the program by the parser."""
    chosen = names.split(",")
    for name in chosen:
        if name not in SCHEMES:
            parser.error(f"--schemes has {name}; expected some of {', '.join(SCHEMES)}")
    return chosen
