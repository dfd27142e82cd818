"""Blocks of numbers quantised to int8 and int4, bit by bit.

Writes tests/fixtures/quantisation/expected.json:

  blocks     tensors that are quantised and restored:
    name, type, block   the type is int8 or int4; a block has so many elements
    x                   the elements
    piece               the bytes that are sent
    restored            the elements that come back; "nan" where a number is not
    restored_bf16       the same, rounded to bf16
  feedback   the same addends x, quantised in several steps with error feedback:
    beta                the share of the error that is kept
    steps               piece, and error after the step
  sums       tensors x of several ranks, each quantised and restored, and added to zeros in order:
    pieces, sum

Numbers of f32 are 8 hexadecimal digits, the sign first. Those of bf16 are the first 4 of them. Bytes
are in the order of memory, where a word of f32 has its lowest byte first.

  L = 127 in int8, 7 in int4;  m = max |x| of a block
  s = L / m;  q = x s, rounded to an integer, ties to even;  scale = 1 / s;  restored = q scale
  y = x + e;  e = beta e + (1 - beta) (y - restored y)

Every result of an operation is rounded to f32, ties to even. The script computes with fractions, so
that nothing else is rounded. Elements below 2^-126 count as zeros. A block with m below L 2^-126 has
q = 0 and the scale 1. A block with an infinity or NaN has q = 0 and the scale NaN.

A piece has the integers, then zeros up to a multiple of 4 bytes, then the scales, then zeros up to a
multiple of 16 bytes. In int8 an integer is a byte. In int4 two are a byte, the first in its upper
half.

Usage, with Python alone; the second line fails if the fixture was not what the script makes:

  python3 tests/reference/quantisation.py
  git diff --exit-code tests/fixtures/quantisation
"""

import json
import pathlib
import random
import struct
from fractions import Fraction

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "quantisation"
MADE_BY = "tests/reference/quantisation.py, which says what stands here"
LARGEST = {"int8": 127, "int4": 7}
LEAST_NORMAL = Fraction(1, 2**126)
NAN, INFINITY = "nan", "infinity"


def rounded(number, digits=24):
    """A fraction rounded to a binary float with so many digits, f32's exponents and ties to even."""
    if number == 0 or number in (NAN, INFINITY):
        return number
    exponent = -126
    while abs(number) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - digits + 1)
    result = round(number / unit) * unit
    return INFINITY if abs(result) >= 2**128 else result


def bits(number):
    """The digits of an f32."""
    if number == NAN:
        return "7fc00000"
    if number == INFINITY:
        return "7f800000"
    return struct.pack(">f", float(number)).hex()


def number_of(digits):
    value = struct.unpack(">f", bytes.fromhex(digits))[0]
    if value != value:
        return NAN
    return INFINITY if abs(value) == float("inf") else Fraction(value)


def quantised_block(x, largest):
    """The integers of a block and its scale."""
    if NAN in x or INFINITY in x:
        return [0] * len(x), NAN
    m = max(abs(value) for value in x)
    if m < largest * LEAST_NORMAL:
        return [0] * len(x), Fraction(1)
    factor = rounded(Fraction(largest) / m)
    elements = [value if abs(value) >= LEAST_NORMAL else 0 for value in x]
    integers = [round(rounded(value * factor)) for value in elements]
    assert all(abs(q) <= largest for q in integers)
    return integers, rounded(1 / factor)


def quantised(x, kind, block):
    """The integers of all blocks, and their scales."""
    integers, scales = [], []
    for begin in range(0, len(x), block):
        of_block, scale = quantised_block(x[begin:begin + block], LARGEST[kind])
        integers += of_block
        scales.append(scale)
    return integers, scales


def restored(integers, scales, block):
    return [NAN if scales[i // block] == NAN else rounded(q * scales[i // block])
            for i, q in enumerate(integers)]


def piece_of(integers, scales, kind):
    """The bytes of a piece, as hexadecimal digits."""
    if kind == "int8":
        data = bytes(q % 256 for q in integers)
    else:
        even = integers + [0] * (len(integers) % 2)
        data = bytes(16 * (first % 16) + second % 16
                     for first, second in zip(even[::2], even[1::2]))
    data += bytes(-len(data) % 4)
    data += b"".join(bytes.fromhex(bits(scale))[::-1] for scale in scales)
    return (data + bytes(-len(data) % 16)).hex()


def block_case(name, x, kind, block):
    """`x` has the digits of the elements."""
    integers, scales = quantised([number_of(value) for value in x], kind, block)
    back = restored(integers, scales, block)
    return dict(name=name, type=kind, block=block, x=x, piece=piece_of(integers, scales, kind),
                restored=[NAN if value == NAN else bits(value) for value in back],
                restored_bf16=[NAN if value == NAN else bits(rounded(value, 8))[:4]
                               for value in back])


def congruential(seed, count, amplitude=1.0):
    """The digits of numbers that f32 holds exactly: 24 bits of each state, less a half."""
    digits = []
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        digits.append(bits(((seed >> 8) / 2**24 - 0.5) * amplitude))
    return digits


def special_elements():
    """Yields names and the digits of elements, for blocks of four."""
    def floats(*values):
        return [bits(Fraction(value)) for value in values]

    tiny = 2.0**-126
    yield "zeros", floats(0, 0, 0, 0, 0, 0)
    yield "zeros of both signs", ["80000000", "00000000"]
    yield "eighths", floats(-1, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1)
    yield "ties", floats(127, 0.5, 1.5, 2.5, -127, -0.5, -1.5, -2.5)
    yield "ties of int4", floats(7, 0.5, 1.5, 2.5, -7, -0.5, -1.5, -2.5, 3.5, -6.5, 7, 4.5)
    yield "one element", floats(3)
    yield "a rest of one element", floats(1, -2, 3, -4, 5)
    yield "NaN in the first block", floats(1) + ["7fc00000"] + floats(2, 3, 1, 2)
    yield "NaN of the other sign", ["ffc00001"] + floats(1, 2, 3)
    yield "infinity in the first block", floats(1, 2) + ["ff800000"] + floats(3, 1, -1)
    yield "infinity in the last block", floats(1, 2, 4, 3) + ["7f800000"]
    yield "denormals alone", floats(2.0**-140, -2.0**-149, 0, 0)
    yield "below the least scale", floats(tiny, -tiny / 2, 3 * tiny, 0)
    yield "near the least scale", floats(128 * tiny, -127 * tiny, tiny, 0)
    # The factor is above 2^125, so a denormal number would round to one.
    yield "denormals beside numbers", floats(127 * tiny, 0.75 * tiny, -0.75 * tiny, tiny)
    yield "denormals beside numbers of int4", floats(7 * tiny, 0.75 * tiny, -0.75 * tiny, -tiny)
    yield "the largest float", ["7f7fffff"] + floats(-1e38, 1, 0)
    yield "large beside small", floats(1e30, 1, -1e30, 5, 1e-3, -1e-3)


def block_cases():
    for kind in LARGEST:
        for name, x in special_elements():
            yield block_case(name, x, kind, 4)
        yield block_case("random, one block", congruential(1, 64), kind, 64)
        yield block_case("random, a short last block", congruential(2, 100, 2.0**-10), kind, 32)
        yield block_case("random, an odd rest", congruential(3, 301, 2.0**20), kind, 128)
        yield block_case("random, blocks of six", congruential(4, 45), kind, 6)
    yield block_case("random, blocks of one", congruential(5, 9), "int8", 1)
    # Of all exponents, NaN and infinities among them.
    generator = random.Random(6)
    digits = [f"{generator.randrange(2**16):04x}0000" for _ in range(200)]
    for kind in LARGEST:
        yield block_case("any bf16", digits, kind, 8)


def feedback_cases():
    for kind in LARGEST:
        for block, beta in (6, 0.8), (8, 0.5):
            x = congruential(7, 13)
            addends = [number_of(value) for value in x]
            error, steps = [Fraction(0)] * len(x), []
            keep, rest = rounded(Fraction(beta)), rounded(Fraction(1 - beta))
            for _ in range(3):
                y = [rounded(value + e) for value, e in zip(addends, error)]
                integers, scales = quantised(y, kind, block)
                back = restored(integers, scales, block)
                error = [rounded(rounded(keep * e) + rounded(rest * rounded(value - r)))
                         for e, value, r in zip(error, y, back)]
                steps.append(dict(piece=piece_of(integers, scales, kind),
                                  error=[bits(e) for e in error]))
            yield dict(type=kind, block=block, beta=beta, x=x, steps=steps)


def sum_cases():
    for kind in LARGEST:
        x = [congruential(100 + rank, 10) for rank in range(4)]
        total, pieces = [Fraction(0)] * 10, []
        for values in x:
            integers, scales = quantised([number_of(value) for value in values], kind, 4)
            pieces.append(piece_of(integers, scales, kind))
            total = [rounded(a + b) for a, b in zip(total, restored(integers, scales, 4))]
        yield dict(type=kind, block=4, x=x, pieces=pieces, sum=[bits(value) for value in total])


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    lists = dict(blocks=block_cases(), feedback=feedback_cases(), sums=sum_cases())
    members = ",\n".join(
        f' "{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n ]"
        for name, cases in lists.items())
    (FOLDER / "expected.json").write_text(f'{{"made_by": {json.dumps(MADE_BY)},\n{members}\n}}\n')


if __name__ == "__main__":
    main()
