"""Random programs for distribution_types.py: their operands fit each other but for a few mistakes."""

import contextlib
import random

import numpy

STEPS = 11  # of a program
VIEWS = {"dense": "tcd", "expert": "ex"}

LABELS = """
~t i, ~o i -> t o
~b s i, ~o i -> b s o
~t i, ~t o -> o i
~t i, ~o i + ~o -> t o
~b s o + ~o -> b s o
~t i, ~o i + ~t k, ~o k -> t o
~t i, ~o i + ~t i, ~o i + ~o -> t o
~t c + ~t c -> t c
~t c + ~t c + ~t c -> t c
~t c, ~t c -> t c
~t c, ~c -> t c
~t c, t c -> t c
t c -> t c
t c, t c, ~t c -> t c, t c
~t i, o i, p i -> t o, t p; o=p
~r! c, n! k! -> n c
b s c -> b s c
~t c -> t c
~t c -> c t
t c!, c! -> t c!
t c!, c!, ~t c! -> t c!, c!
b s c!, c! -> b s c!
~t c ->
t c ->
~t! c! ->
~t c, -> t c
~, ?t c -> t c
~n E -> E
~E, ?n E -> n E
~E, ?n -> E
~E, ~E ->
~v c, t -> t c
t, ~t c, ?v c -> v c
~v c, b s -> b s c
b s, ~b s c, ?v c -> v c
b s h k!, b z! g k!, ~b z! g k! -> b s h k!; h=g
(b s) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d!), (b s) h; h=g
t (h d!), s! (g d!), s! (g d!) -> t (h d!); h=g
(b s) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d), b h s; h=g
(b s) (h d!), (b z!) (g d!), ~(b s) (h d!), b h s -> (b s) (h d), (b z) (g d); h=g
~t (h d!), t r! -> t (h d)
~b s c -> (b s) c
~(b s) c -> b s c
~b s (h k) -> b s h k
~b s h k -> b s (h k)
~n c -> n k c
~n k c -> (n* k) c
~(n* k) c -> n k c
n k -> (n* k)
~n k c, ~n k -> n c
n E! -> n E
n E!, ~n E! -> n E
n E! -> n k
n E! -> n
n E!, ~n -> n E
~n E!, n k -> n k
?n E!, n k, ~n k -> n E
n k -> E
~b s k, ?b s h k -> b s h k
~b s h k -> b s k
~(E r) i, ~E o i -> (E r) o
~(E r) o, (E r) i -> E o i
~(E r) i, ~(E r) i -> (E r) i
(E r) i -> (E r) i
~(E r) i, ~(E r) o, f! -> E o i
~(E r) i + ~(E r) i -> (E r) i
""".strip().split("\n")


def ties_of(text):
    """Labels without their ties, and the ties: "t h -> t g; h=g" has (("h", "g"),)."""
    labels, _, ties = text.partition(";")
    return labels, tuple(tuple(tie.strip().split("=")) for tie in ties.split(",") if tie.strip())


def one_element(dims):
    """An array of one element that has as many dims."""
    return numpy.ones((1,) * len(dims))


class Author:
    """Writes one random program and has it judged.

    Its values have one element. The types alone decide, and not whether extents divide.
    """

    def __init__(self, core, recorder, mesh, seed):
        self.core, self.recorder = core, recorder
        self.random = random.Random(seed)
        self.builder = core.Builder(core.Mesh(*mesh), check_data=False)
        self.pool = []
        recorder.begin(mesh)

    def chance(self, probability):
        return self.random.random() < probability

    # ---- leaves

    def some_pieces(self):
        return self.random.choice(["even", "even", "even", "zigzag", "zigzag", "flat",
                                   ("uneven", (3, 5)), ("uneven", (5, 3))])

    def some_identity(self):
        return (self.random.choice(["exchange", "tokens"]), self.random.randrange(2))

    def some_split(self, view, dim, factor):
        if view == "expert" and self.chance(0.4):
            return ("V", dim, self.some_identity(), factor)
        return ("S", dim, self.some_pieces(), factor)

    def some_type(self, view, dims):
        kind = self.random.choice("IRPSS" if dims else "IRP")
        if kind != "S":
            return (kind,)
        dim = self.random.randrange(len(dims))
        return self.some_split(view, dim, self.random.randrange(min(2, len(dims[dim]))))

    def labels_of(self, operand):
        """The labels that may be split, and where: {label: (dim, factor)}."""
        return {self.core.clean(label): (dim, factor) for dim, labels in enumerate(operand["dims"])
                for factor, label in enumerate(labels) if not label.endswith("!")}

    def split_label(self, operand, type_):
        labels = operand["dims"][type_[1]]
        whole_dim = len(labels) == 1 or labels[0].endswith("*")
        return self.core.clean(labels[0 if whole_dim else type_[3]])

    def fitting_type(self, axis, view, operand, term, placed, tied):
        """A type on one axis that fits the operands that are there, if the rules are kept."""
        if operand["so"] and self.chance(0.25):
            return ("P",)
        labels = {tied(label): place for label, place in self.labels_of(operand).items()}
        split = next(((tied(self.split_label(other, value.ty[axis])), value.ty[axis])
                      for other, _, value in placed if value.ty[axis][0] in "SV"), None)
        kinds = [value.ty[axis][0] for _, _, value in placed]
        if split:
            label, type_ = split
            if label in labels:
                dim, factor = labels[label]
                return (type_[0], dim, type_[2], factor)
            return ("R",)
        if "P" in kinds:
            here = any(value.ty[axis][0] == "P" for _, other, value in placed if other == term)
            return ("R",) if here else ("P",)
        if "I" in kinds:
            return ("I",)
        taken = {tied(label) for other, _, _ in placed for label in self.labels_of(other)}
        free = [label for label in labels if label not in taken]
        if free and self.chance(0.35 if kinds else 0.5):
            # The first more often than others, so that several axes split one label.
            label = free[0] if self.chance(0.5) else self.random.choice(free)
            return self.some_split(view, *labels[label])
        if kinds:
            return ("R",) if self.chance(0.8) else ("P",)
        return (self.random.choice("IIIRPP"),)

    def fresh(self, view, operand, term, placed, tied):
        types = {axis: self.fitting_type(axis, view, operand, term, placed, tied)
                 for axis in VIEWS[view]}
        if self.chance(0.12):
            types[self.random.choice(VIEWS[view])] = self.some_type(view, operand["dims"])
        shuffled = self.chance(0.2 if placed else 0.3)
        return self.new_leaf(view, types, len(operand["dims"]), placed, shuffled)

    def of_other_view(self, view, operand):
        """A value that means the same in both views, if it has no gradient and nothing is P."""
        other = "expert" if view == "dense" else "dense"
        types = {axis: (self.random.choice("IIIRRP"),) for axis in VIEWS[other]}
        return self.new_leaf(other, types, len(operand["dims"]), differentiable=self.chance(0.2))

    def new_leaf(self, view, types, rank, placed=(), shuffled=False, differentiable=None):
        known = [axes for _, _, value in placed for axes in value.order.values()]
        order = {}
        for dim in range(rank):
            axes = [axis for axis in VIEWS[view] if types[axis][0] in "SV" and types[axis][1] == dim]
            for others in known:
                if set(axes) <= set(others):
                    axes = [axis for axis in others if axis in axes]
            if shuffled:
                self.random.shuffle(axes)
            if axes:
                order[dim] = tuple(axes)
        if differentiable is None:
            differentiable = self.chance(0.8)
        value = self.builder.leaf("leaf", one_element(range(rank)), view, types, order,
                                  diff=differentiable)
        value.order = order
        self.recorder.leaf(value)
        self.pool.append(value)
        return value

    # ---- steps

    def fits(self, value, view, operand):
        """Whether a value has the dims of an operand, and factors where it is split by one."""
        if value.view != view and not self.chance(0.15):
            return False
        dims = operand["dims"]
        return len(value.data[0].shape) == len(dims) and all(
            len(dims[type_[1]]) == 1 or type_[3] < len(dims[type_[1]])
            for type_ in value.ty.values() if len(type_) > 1)

    def operation(self):
        text = self.random.choice(LABELS)
        labels, ties = ties_of(text)
        inputs, terms, outputs = self.core.parse(labels)
        tied = lambda label: next((tie[0] for tie in ties if label in tie), label)
        view = self.pool[-1].view if self.pool and self.chance(0.9) else (
            "expert" if self.chance(0.3) else "dense")
        term_of = {position: index for index, term in enumerate(terms) for position in term}
        placed, operands = [], []
        for position, operand in enumerate(inputs):
            able = [value for value in self.pool[-8:] if self.fits(value, view, operand)]
            use_pool = able and self.chance(0.75 if not placed else 0.25)
            if placed and self.chance(0.015):
                value = self.of_other_view(view, operand)
            elif use_pool:
                value = self.random.choice(able)
            else:
                value = self.fresh(view, operand, term_of[position], placed, tied)
            if value.view == view:
                placed.append((operand, term_of[position], value))
            operands.append(value)
        item = ["op", self.recorder.place(self.recorder.labels, text),
                [self.recorder.positions[id(value)] for value in operands]]
        self.recorder.items.append(item)
        shapes = [one_element(output["dims"]) for output in outputs]
        try:
            results = self.builder.op("op", labels, operands, ties=ties,
                                      group=lambda view, types: [[shape] * self.builder.m.n
                                                                 for shape in shapes])
        except self.core.Refused as error:
            item.append(self.recorder.refusal(error))
            return
        results = results if isinstance(results, list) else [results]
        item.append([self.recorder.of_value(value) for value in results])
        for value in results:
            self.recorder.note(value)
            self.pool.append(value)

    def conversion(self):
        value = self.random.choice(self.pool[-6:])
        rank = len(value.data[0].shape)
        split = [axis for axis in VIEWS[value.view] if value.ty[axis][0] in "SV"]
        inner = [axis for axis in split if value.ty[axis][3]]
        axes = self.random.choice([VIEWS[value.view], split or VIEWS[value.view], inner or split])
        axis = self.random.choice(axes or VIEWS[value.view])
        begin = value.ty[axis][0] if self.chance(0.85) else self.random.choice("IRPSV")
        if begin == "R" and not value.diff and self.chance(0.4):
            begin = "I"
        kind = self.random.choice("IRPSSV" if rank else "IRP")
        if begin == kind == "I" and self.chance(0.7):
            kind = "R"
        to = (kind,)
        if kind in "SV":
            pieces = self.some_pieces() if kind == "S" else self.some_identity()
            to = (kind, self.random.randrange(rank), pieces, 0)
        result = record_conversion(self.core, self.recorder, self.builder, value, axis, begin, to)
        if result is not None:
            result.data = [one_element(range(rank))] * self.builder.m.n
            self.pool.append(result)

    def crossing(self):
        """Adds the result of a crossing as a leaf."""
        value = self.random.choice(self.pool[-6:])
        with contextlib.suppress(self.core.Refused):
            crossed = self.builder.cross(value, "expert" if value.view == "dense" else "dense")
            self.recorder.leaf(crossed)
            self.pool.append(crossed)

    def write(self):
        for _ in range(STEPS):
            step = self.random.random()
            if not self.pool or step < 0.6:
                self.operation()
            elif step < 0.96:
                self.conversion()
            else:
                self.crossing()


def record_conversion(core, recorder, builder, value, axis, begin, to):
    """Has a conversion judged. Returns its result, or none if it is refused."""

    def judged(value):
        keep = {rank: [0] * builder.m.n for rank in range(builder.m.n)}
        details = dict(dim=to[1], pieces=to[2]) if len(to) > 1 else {}
        return builder.convert(value, axis, to[0], keep=keep, frm=begin, **details)

    item = ["convert", recorder.positions[id(value)], axis, begin,
            to[0] if len(to) == 1 else recorder.type_entry(axis, to)]
    recorder.items.append(item)
    try:
        result = judged(value)
    except core.Refused as error:
        item.append(recorder.refusal(error))
        is_one = not value.diff and (value.ty[axis][0], begin) == ("R", "I")
        if item[-1] == "!inner factor" or (item[-1] == "!other end" and is_one):
            other = ("I",) if is_one else (*value.ty[axis][:3], 0)
            like = core.Value(value.name, value.view, {**value.ty, axis: other}, value.order,
                              value.diff, value.data)
            try:
                item.append([recorder.of_value(judged(like))])
            except core.Refused as other_error:
                item.append(recorder.refusal(other_error))
        return None
    item.append([recorder.of_value(result)])
    recorder.note(result)
    return result
