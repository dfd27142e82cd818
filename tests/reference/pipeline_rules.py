"""Pipeline schedules, written down from their published rules for pipeline_schedules.py.

docs/pipelines.md states the rules and names the papers. Nothing here follows src/pipeline/.
"""

from collections import Counter
from typing import NamedTuple

STEPS = dict(F=1, B=-1, I=-1, W=0)  # from the chunk of an action to the one that takes its result


class Action(NamedTuple):
    kind: str
    chunk: int
    micro_batch: int

    def __str__(self):
        return f"{self.kind}{self.chunk}.{self.micro_batch}"


class Boundary(NamedTuple):
    """What one chunk computes for a neighbour."""
    values: str
    source: int
    target: int
    micro_batch: int

    def __str__(self):
        return (f"the {self.values} of micro-batch {self.micro_batch} from chunk {self.source} to "
                f"chunk {self.target}")


class Schedule(NamedTuple):
    placement: list  # the rank of each chunk
    micro_batches: int
    blocks: list  # of each rank: tuples of one action, or of two that run as one

    def lists(self):
        """The actions of each rank."""
        return [[action for block in blocks for action in block] for blocks in self.blocks]

    def output_of(self, action):
        step, chunks = STEPS[action.kind], range(len(self.placement))
        if step == 0 or action.chunk not in chunks or action.chunk + step not in chunks:
            return None
        values = "activations" if action.kind == "F" else "gradients"
        return Boundary(values, action.chunk, action.chunk + step, action.micro_batch)

    def input_of(self, action):
        return self.output_of(action._replace(chunk=action.chunk - STEPS[action.kind]))

    def is_message(self, boundary):
        return (boundary is not None
                and self.placement[boundary.source] != self.placement[boundary.target])

    def received(self, actions):
        return list(filter(self.is_message, map(self.input_of, actions)))

    def sent(self, actions):
        return list(filter(self.is_message, map(self.output_of, actions)))


# The schedules whose chunk c is on rank c mod ranks.

def groups_of(micro_batches, size, shortest=0):
    """Groups of consecutive micro-batches. A last group that is not full and has fewer than
    `shortest` joins the one before it."""
    groups = [range(first, min(first + size, micro_batches))
              for first in range(0, micro_batches, size)]
    if len(groups) > 1 and len(groups[-1]) < min(size, shortest):
        groups[-2:] = [range(groups[-2].start, micro_batches)]
    return groups


def looped(ranks, chunks, groups, warm_up):
    """A rank takes a group through each of its chunks before the next group. It runs warm_up(rank)
    forwards, then a forward and a backward in turn, then the other backwards."""
    steps = [(turn, i) for group in groups for turn in range(chunks) for i in group]
    lists = []
    for rank in range(ranks):
        forwards = [Action("F", turn * ranks + rank, i) for turn, i in steps]
        backwards = [Action("B", (chunks - 1 - turn) * ranks + rank, i) for turn, i in steps]
        ahead = min(warm_up(rank), len(steps))
        pairs = zip(forwards[ahead:], backwards)
        actions = forwards[:ahead] + [action for pair in pairs for action in pair]
        lists.append([(action,) for action in actions + backwards[len(steps) - ahead:]])
    placement = [chunk % ranks for chunk in range(ranks * chunks)]
    return Schedule(placement, groups[-1].stop, lists)


def gpipe(ranks, chunks, micro_batches, group=None):
    groups = groups_of(micro_batches, group or micro_batches)
    return looped(ranks, chunks, groups, lambda rank: chunks * micro_batches)


def interleaved(ranks, chunks, groups):
    """1F1B, interleaved if a rank has several chunks. With some groups it deadlocks."""
    largest = max(map(len, groups))
    return looped(ranks, chunks, groups, lambda rank: ranks - rank - 1 if chunks == 1 else
                  2 * (ranks - rank - 1) + (chunks - 1) * largest)


def one_forward_one_backward(ranks, micro_batches):
    return interleaved(ranks, 1, groups_of(micro_batches, micro_batches))


def zero_bubble_h1(ranks, micro_batches):
    """1F1B with halves of backwards: `rank` weight gradients wait, the next one is computed."""
    lists = []
    for rank in range(ranks):
        forwards, inputs, weights = ([Action(kind, rank, i) for i in range(micro_batches)]
                                     for kind in "FIW")
        ahead = ranks - rank - 1
        actions = forwards[:ahead]
        for i in range(micro_batches):
            actions += forwards[ahead + i:ahead + i + 1] + [inputs[i]]
            actions += [weights[i - rank]] if i >= rank else []
        actions += weights[max(micro_batches - rank, 0):]
        lists.append([(action,) for action in actions])
    return Schedule(list(range(ranks)), micro_batches, lists)


# The schedules in which a rank has one chunk of the way down the ranks and one of the way up.

class WayDownAndUp:
    """The list of a rank as it grows.

    The steps "F0 I1" are the next forward of the chunk of the way down (0) and the next input
    gradients of that of the way up (1). "F0&B1" is one block. "W1" is the oldest weight gradients
    of the way up that wait, and "W" the oldest of both.
    """

    def __init__(self, ranks, rank):
        self.chunks = (rank, 2 * ranks - 1 - rank)
        self.blocks, self.waiting, self.done = [], [], Counter()

    def run(self, times, steps):
        for _ in range(times):
            for block in steps.split():
                self.blocks.append(tuple(self.next(name) for name in block.split("&")))

    def next(self, name):
        kind, chunks = name[0], [self.chunks[int(way)] for way in name[1:]] or self.chunks
        if kind == "W":
            oldest = next(action for action in self.waiting if action.chunk in chunks)
            self.waiting.remove(oldest)
            return oldest
        pass_and_chunk = kind == "F", chunks[0]
        micro_batch = self.done[pass_and_chunk]
        self.done[pass_and_chunk] += 1
        if kind == "I":
            self.waiting.append(Action("W", chunks[0], micro_batch))
        return Action(kind, chunks[0], micro_batch)


def down_and_up(ranks):
    return [*range(ranks), *reversed(range(ranks))]


def zero_bubble_v(ranks, micro_batches):
    lists = []
    padded = max(micro_batches, 2 * ranks - 1)  # those that do not exist are left out at the end
    for rank in range(ranks):
        way, below = WayDownAndUp(ranks, rank), ranks - rank
        way.run(2 * below - 1, "F0")
        way.run(rank, "F1 F0")
        way.run(below, "F1 I1 W1")
        way.run(padded - 2 * ranks + rank + 1, "F0 I0 W0 F1 I1 W1")
        way.run(below - 1, "I0 W0 F1 I1 W1")
        way.run(rank, "I0 I1")
        way.run(below, "I0 W0")
        way.run(rank, "W1")
        way.run(rank, "W0")
        lists.append([block for block in way.blocks if block[0].micro_batch < micro_batches])
    return Schedule(down_and_up(ranks), micro_batches, lists)


def dualpipe_v(ranks, micro_batches):
    """The eight steps of DeepSeek's dualpipev.py."""
    lists = []
    for rank in range(ranks):
        way, below = WayDownAndUp(ranks, rank), ranks - rank - 1
        way.run(2 * below, "F0")
        way.run(rank + 1, "F0 F1")
        way.run(below, "I1 W F1")
        way.run(1, "F0&B1 F1&B0" if below else "F0 B1 F1&B0")
        way.run(micro_batches - 2 * ranks + rank, "F0&B1 F1&B0")
        way.run(below, "B1 F1&B0")
        for i in range(2 * (rank + 1)):  # the second half leaves the weight gradients for later
            way.run(1, f"{'B' if i <= rank else 'I'}{1 - i % 2}")
        way.run(below, "W I0")
        way.run(rank + 1, "W")
        lists.append(way.blocks)
    return Schedule(down_and_up(ranks), micro_batches, lists)


def without_blocks(schedule):
    """The same with one action after the other."""
    return schedule._replace(blocks=[[(action,) for action in actions]
                                     for actions in schedule.lists()])
