"""What a rank keeps and what it receives where ranks share the training state.

Writes tests/fixtures/sharding/table.json: a row for each mesh, each triple of placements that the
dependency rule of ZeRO-topo (section V) allows, and each set of wire formats. "units" are those of
the model: the elements, whether they are bf16, whether the backward pass uses the weights, and how
many such units there are. Weights that are bf16 have f32 masters. All other weights are f32 and their own masters. Gradients and moments are
f32. "columns" names the values of a row, which are bytes of one rank, on average over all ranks:

  levels       the ranks of a group of the innermost level, the groups of the next, and so on
  weights, gradients, optimizer, secondary
               the number of levels, from the innermost on, over which ranks share a part; 0: each
               has all of it, or there is no second copy
  wires        the format of the weights' gathers, of the second copy and of the gradients;
               "stored" stands for the elements as they are
  kept         weights, second copies, main gradients, masters, moments
  forward, backward
               of the weights' gathers in the passes of a micro-batch, by level
  reduction    of the gradients' reduction in each micro-batch
  step_sum     of the rest of this sum, once a step
  step_gather  of the updated weights, once a step

A collective takes a level at a time. Sums begin with the innermost one and gathers with the
outermost one. A message of integers has a scale of 4 bytes for each block. Its integers are padded
to 4 bytes, and all of it to 16. Units that are not bf16 travel as f32 where others become integers.
Where reductions of micro-batches send integers, the rest of the sum is sent in bf16, but for those
units.

The script fails unless the figures are those of the papers' formulas, with these types put in.

Usage, with Python alone; the second line fails if the fixture was not what the script makes:

  python3 tests/reference/sharding.py
  git diff --exit-code tests/fixtures/sharding
"""

import json
import pathlib
from fractions import Fraction
from math import prod
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "sharding"
MADE_BY = "tests/reference/sharding.py, which says what stands here"
BLOCK = 256  # elements that have one scale
BITS = dict(int4=4, int8=8, bf16=16, f32=32)


class Unit(NamedTuple):
    elements: int
    is_bf16: bool
    in_backward: bool
    count: int

    @property
    def weight(self):
        """The format of the weights as they are stored."""
        return "bf16" if self.is_bf16 else "f32"


class Placements(NamedTuple):
    weights: int
    gradients: int
    optimizer: int
    secondary: int = 0


class Wires(NamedTuple):
    weights: str = "stored"
    secondary: str = "stored"
    gradients: str = "stored"


# A layer of 64 channels with 256 inner ones, a head of 1024 tokens, the norms, and the embedding,
# whose gradient does not depend on its weights.
UNITS = [Unit(65536, True, True, 2), Unit(128, False, True, 1), Unit(64, False, True, 1),
         Unit(65536, True, False, 1)]


def is_integer(wire):
    return wire.startswith("int")


def message(elements, wire, block=BLOCK):
    """The bytes of one message."""
    elements = Fraction(elements)
    if not is_integer(wire):
        return elements * BITS[wire] / 8
    assert elements.denominator == 1, "integers need even pieces"
    elements = int(elements)
    integers = -(-elements * BITS[wire] // 8)
    scales = -(-elements // block)
    return Fraction(-(-(-(-integers // 4) * 4 + 4 * scales) // 16) * 16)


def gather(levels, begin, end, elements, wire, message=message):
    """The bytes by level of a gather of `elements` elements over the levels from `begin` to `end`.
    What is sent are the pieces of all these levels, of which a rank gets ever more."""
    received = [Fraction(0)] * len(levels)
    piece = message(Fraction(elements, prod(levels[begin:end])), wire) if begin < end else 0
    held = 1
    for level in reversed(range(begin, end)):
        received[level] = (levels[level] - 1) * held * piece
        held *= levels[level]
    return received


def scatter(levels, begin, end, elements, wire, message=message):
    """The bytes by level of a sum that leaves each rank its piece. Each level rounds once."""
    received = [Fraction(0)] * len(levels)
    for level in range(begin, end):
        elements = Fraction(elements, levels[level])
        received[level] = (levels[level] - 1) * message(elements, wire)
    return received


def plus(*lists):
    return [sum(values) for values in zip(*lists)]


def kept(levels, unit, placements, wires):
    part = [Fraction(unit.elements, prod(levels[:count])) for count in placements]
    second = wires.secondary if unit.is_bf16 and wires.secondary != "stored" else unit.weight
    return [message(part[0], unit.weight),
            message(part[3], second) if placements.secondary else 0,
            message(part[1], "f32"),
            message(part[2], "f32") if unit.is_bf16 else 0,
            2 * message(part[2], "f32")]


def received(levels, unit, placements, wires):
    """The bytes of a rank by level, for each kind of collective."""
    def format_of(wire, stored):
        if wire == "stored" or is_integer(wire) and not unit.is_bf16:
            return stored
        return wire

    n, count = unit.elements, len(levels)
    weights, gradients, optimizer, secondary = placements
    weights_wire = format_of(wires.weights, unit.weight)
    forward = gather(levels, 0, weights, n, weights_wire)
    backward = forward
    if secondary:
        backward = gather(levels, 0, secondary, n, format_of(wires.secondary, unit.weight))
    if not unit.in_backward:
        backward = [Fraction(0)] * count
    reduction = scatter(levels, 0, gradients, n, format_of(wires.gradients, "f32"))
    rest_wire = format_of(wires.gradients, "f32")
    if gradients and is_integer(rest_wire):
        rest_wire = "bf16"
    # All levels that are left are summed. Then ranks with the same piece of the states gather it. A
    # piece that the sum has cut is not rounded for that.
    step_sum = plus(scatter(levels, gradients, count, Fraction(n, prod(levels[:gradients])),
                            rest_wire),
                    gather(levels, optimizer, count, Fraction(n, prod(levels[:optimizer])),
                           "bf16" if rest_wire == "bf16" and optimizer == gradients else "f32"))
    step_gather = gather(levels, weights, optimizer, Fraction(n, prod(levels[:weights])),
                         unit.weight)
    return [forward, backward, reduction, step_sum, step_gather]


def figures(levels, placements, wires):
    """The figures of a row, in the order of its columns."""
    kept_bytes = plus(*([unit.count * bytes for bytes in kept(levels, unit, placements, wires)]
                        for unit in UNITS))
    by_kind = [plus(*([unit.count * bytes for bytes in received(levels, unit, placements, wires)[i]]
                      for unit in UNITS)) for i in range(5)]
    return [whole(kept_bytes)] + list(map(whole, by_kind))


def whole(values):
    assert all(Fraction(value).denominator == 1 for value in values)
    return list(map(int, values))


COLUMNS = ["levels", "weights", "gradients", "optimizer", "secondary", "wires", "kept", "forward",
           "backward", "reduction", "step_sum", "step_gather"]
STORED = Wires()
INTEGERS = Wires("int8", "int8", "int4")


def rows():
    for levels in ([2, 2, 2], [2, 4, 2]):
        parts = range(len(levels) + 1)
        triples = [Placements(w, g, o) for w in parts for g in parts for o in parts if w <= g <= o]
        settings = [(triple, wires) for triple in triples for wires in (STORED, INTEGERS)]
        # ZeRO++, whose second copy is not rounded in Table V, and is in Table VII; then ZeRO-topo
        # with its copies over a node and over a pair.
        settings += [(Placements(3, 3, 3, 2), INTEGERS._replace(secondary="stored")),
                     (Placements(3, 3, 3, 2), INTEGERS),
                     (Placements(1, 2, 3, 2), INTEGERS), (Placements(1, 2, 3, 1), INTEGERS)]
        for placements, wires in settings:
            yield [levels, *placements, list(wires), *figures(levels, placements, wires)]


def check_published():
    """Fails unless a unit of bf16 has the bytes of the papers' formulas, where no scale is counted.
    M are the bytes of its weights."""
    def share(ranks):
        return Fraction(ranks - 1, ranks)

    def plain(elements, wire):
        return Fraction(elements) * BITS[wire] / 8

    unit, topo, plus_plus = UNITS[0], Placements(1, 2, 3, 2), Placements(3, 3, 3, 2)
    n = unit.elements
    M = 2 * n
    for levels in ([2, 2, 2], [2, 4, 2], [2, 4, 8]):
        pair, node, all_ranks = levels[0], prod(levels[:2]), prod(levels)
        # ZeRO-topo, section III-B: 4 psi + K psi, here with gradients of 4 bytes and K = 12.
        for w, g, o in ((0, 0, 0), (0, 0, 3), (0, 3, 3), (3, 3, 3)):
            parts = kept(levels, unit, Placements(w, g, o), STORED)
            ranks = [prod(levels[:count]) for count in (w, g, o)]
            assert sum(parts) == Fraction(2 * n, ranks[0]) + Fraction(4 * n, ranks[1]) + \
                Fraction(12 * n, ranks[2])
        # Table V, without scales: 2 psi / d + 2 psi / P, and psi + psi / P, and 1.5 psi.
        parts = kept(levels, unit, plus_plus, STORED)
        assert parts[0] + parts[1] == Fraction(M, all_ranks) + Fraction(M, node)
        # Table VI: gradients over all ranks, or over a node, at twice the paper's bytes.
        assert parts[2] == Fraction(2 * M, all_ranks)
        assert kept(levels, unit, topo, STORED)[2] == Fraction(2 * M, node)
        # Tables VII and VIII, without scales. Levels share the bytes, and their sum is the paper's.
        for wire, part in (("bf16", 1), ("int8", Fraction(1, 2))):
            for count, ranks in ((3, all_ranks), (2, node), (1, pair)):
                assert sum(gather(levels, 0, count, n, wire, plain)) == part * M * share(ranks)
        # A sum that rounds in each level sends no more than one in one step.
        for wire, part in (("f32", 2), ("int4", Fraction(1, 4))):
            assert sum(scatter(levels, 0, 3, n, wire, plain)) == part * M * share(all_ranks)
            assert sum(scatter(levels, 0, 2, n, wire, plain)) == part * M * share(node)
        # A sum that all ranks take costs twice as much, however far pieces were kept on the way.
        for count in range(4):
            sums = received(levels, unit, Placements(0, 0, count), STORED)
            assert sum(sums[3]) + 2 * sum(sums[4]) == 4 * M * share(all_ranks)
    # 100 elements in int4: 50 bytes, padded to 52, and one scale, padded to 64; blocks of 8 have 13.
    assert message(100, "int4") == 64 and message(100, "int4", 8) == 112
    assert message(100, "int8") == 112 and message(100, "bf16") == 200


def write(name, value_lists):
    text = ",\n".join(json.dumps(values, separators=(",", ":")) for values in value_lists)
    header = f'{{"made_by": {json.dumps(MADE_BY)},\n "block": {BLOCK},\n'
    units = json.dumps([list(unit) for unit in UNITS])
    header += f' "units": {units},\n "columns": {json.dumps(COLUMNS)},\n "rows": [\n'
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text(header + text + "\n]}\n")


if __name__ == "__main__":
    check_published()
    write("table.json", rows())
