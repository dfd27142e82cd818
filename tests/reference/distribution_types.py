"""How a reference implementation of the distribution types judges programs.

Writes tests/fixtures/distribution/programs.json to its output:

  reference      the version of the implementation that judged: date and digest of its core.py
  axes           the mesh's axes: tensor, context, data; expert, expert_data
  labels         of operations
  pieces         of splits: a word, the sizes of uneven ones, or the identity of rows
  distributions  a view and its splits [axis, "S" or "V", dim, pieces, factor], outermost first, and
                 its [axis, "R" or "P"]; a value is invariant on the other axes
  refusals       the kinds of refusal
  programs       a mesh (tensor, context, data, expert) and items. Each adds its values to those of
                 the program, and operands are positions among them:
    ["leaf", distribution, has a gradient]
    ["op", labels, operands, verdict]
    ["convert", operand, axis, from, to, verdict]

A verdict is a refusal, "!kind", or a list of the outputs' distributions. `to` is "I", "R", "P" or a
split as above. Two kinds of refused conversions have a seventh element, the verdict if the value's
type were another: "inner factor", of pieces of an inner factor of a dim, as if the factor were the
outermost; and "other end" of a conversion from "I", of a value without gradient that is "R", as if
it were "I".

Most programs are random: chains of operations and conversions, whose operands fit each other but
for a few mistakes (distribution_programs.py). Results of crossings between the views are leaves:
the rules of crossings are not recorded. The first programs, one for each of the implementation's
own scripts, hold each operation that the script applies once: a model with its backward pass on
several meshes, and mistakes made in it. Operations with a rule by hand are left out.

The implementation is a folder with core.py: classes Builder (leaf, derive, op, convert, cross),
Mesh, Value and Refused, a function piece, and types as tuples. It is not part of this repository.
Usage, with NumPy installed:

  python3 tests/reference/distribution_types.py FOLDER > tests/fixtures/distribution/programs.json
"""

import contextlib
import datetime
import hashlib
import importlib
import io
import json
import os
import pathlib
import runpy
import sys

import numpy

from distribution_programs import VIEWS, Author

PROGRAMS = 1500
MESHES = [(1, 1, 1, 1), (2, 2, 1, 1), (2, 2, 1, 2), (2, 2, 1, 4), (2, 2, 2, 1), (2, 2, 2, 2),
          (2, 2, 2, 4)]
AXES = {"t": "tensor", "c": "context", "d": "data", "e": "expert", "x": "expert_data"}
SCRIPTS = [["mutate.py", "2,2,2,4"], ["vars.py"], ["vars2.py"], ["fuzz.py", "400"]]

# What a message of the implementation says, and the rule that it is about.
REFUSALS = {
    "operands in two views": "views",
    "expected R (retype I -> R": "invariant",
    "must be whole": "whole",
    "two labels are split": "two labels",
    "expected the same pieces": "pieces",
    "it lacks the split label": "lacks label",
    "it would be added once a rank": "terms",
    "the operation is not linear in it": "linear",
    "a product with": "product",
    "expected P (R -> P)": "added",
    "is split in the order": "order",
    "no such conversion": "no conversion",
    "is split over": "not innermost",
    "is split by an inner label": "inner factor",
    "; expected ": "other end",
}


class Recorder:
    """The fixture as it grows. What occurs often is kept once, and named by its position."""

    def __init__(self):
        self.labels, self.pieces, self.distributions, self.refusals = [], [], [], []
        self.programs = []
        self.identities = {}  # what rows without a logical whole carry: a number

    def begin(self, mesh):
        """Begins a program: its items, its values and their positions."""
        self.items, self.values, self.positions, self.size = [], [], {}, 0
        self.identities.clear()
        self.programs.append({"mesh": list(mesh), "items": self.items})

    @staticmethod
    def place(table, entry):
        if entry not in table:
            table.append(entry)
        return table.index(entry)

    def piece_place(self, pieces):
        if isinstance(pieces, str):
            return self.place(self.pieces, pieces)
        if pieces[0] == "uneven":
            return self.place(self.pieces, ["uneven", *pieces[1]])
        identity = self.identities.setdefault(pieces, len(self.identities))
        return self.place(self.pieces, ["tokens" if pieces[0] == "tokens" else "exchange", identity])

    def type_entry(self, axis, type_):
        if len(type_) == 1:
            return [axis, type_[0]]
        return [axis, type_[0], type_[1], self.piece_place(type_[2]), type_[3]]

    def distribution(self, view, types, order):
        entry = [self.type_entry(axis, types[axis]) for dim in sorted(order) for axis in order[dim]]
        entry += [self.type_entry(axis, types[axis]) for axis in VIEWS[view]
                  if types[axis][0] in "RP"]
        return self.place(self.distributions, [view, *entry])

    def of_value(self, value):
        return self.distribution(value.view, value.ty, value.order)

    def leaf(self, value):
        key = (self.of_value(value), bool(value.diff))
        self.items.append(["leaf", *key])
        self.note(value)
        return self.size - 1

    def note(self, value):
        value.ty = Types(value.ty)
        self.positions[id(value)] = self.size
        self.values.append(value)  # lives on: its address is its key
        self.size += 1

    def refusal(self, error):
        kinds = [kind for words, kind in REFUSALS.items() if words in str(error)]
        if not kinds:
            raise error
        return "!" + self.refusals[self.place(self.refusals, kinds[0])]


class Types(dict):
    """Types by axis. A value without gradient may meet those of the other view: there it is I."""

    def __missing__(self, axis):
        return ("I",)


def record_scripts(core, recorder, folder):
    """Records each step of the implementation's scripts that was not seen before."""
    derive, seen = core.Builder.derive, set()

    def recorded(builder, name, labels, values, hand=None, ties=()):
        if hand or builder.policy.get("strict_I"):
            return derive(builder, name, labels, values, hand, ties)
        recorder.identities.clear()
        text = " ".join(labels.split()) + (
            "; " + ", ".join("=".join(tie) for tie in ties) if ties else "")
        signature = (text, *((recorder.of_value(value), value.diff) for value in values))
        if signature in seen:
            return derive(builder, name, labels, values, hand, ties)
        seen.add(signature)
        operands = [recorder.leaf(value) for value in values]
        item = ["op", recorder.place(recorder.labels, text), operands]
        recorder.items.append(item)
        try:
            view, types, orders = derive(builder, name, labels, values, hand, ties)
        except core.Refused as error:
            item.append(recorder.refusal(error))
            raise
        item.append([recorder.distribution(view, *output) for output in zip(types, orders)])
        recorder.size += len(types)
        return view, types, orders

    core.Builder.derive = recorded
    for script, *arguments in SCRIPTS:
        recorder.begin((2, 2, 2, 4))
        sys.argv = [script, *arguments]
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(folder / script))
    core.Builder.derive = derive


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    core = importlib.import_module("core")
    recorder = Recorder()
    record_scripts(core, recorder, folder)
    core.piece = lambda extent, position, count, pieces: numpy.arange(extent)
    for seed in range(PROGRAMS):
        Author(core, recorder, MESHES[seed % len(MESHES)], seed).write()
    source = folder / "core.py"
    reference = {"date": datetime.date.fromtimestamp(source.stat().st_mtime).isoformat(),
                 "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    made_by = ("tests/reference/distribution_types.py, which says what stands here and how to make "
               "it again")
    tables = dict(made_by=made_by, reference=reference, python=sys.version.split()[0],
                  numpy=numpy.__version__, axes=AXES, labels=recorder.labels,
                  pieces=recorder.pieces, distributions=recorder.distributions,
                  refusals=recorder.refusals)
    lines = [f"{json.dumps(key)}:{json.dumps(table, separators=(',', ':'))}"
             for key, table in tables.items()]
    programs = ",\n".join(json.dumps(program, separators=(",", ":")) for program in recorder.programs)
    print("{" + ",\n".join(lines) + f',\n"programs":[\n{programs}\n]' + "}")


if __name__ == "__main__":
    main()
