"""Figures of pipeline schedules, and lists of actions that cannot run, with the reason.

The schedules are those of pipeline_rules.py. Writes tests/fixtures/pipeline/:

  table.json   a row for each schedule, shape and set of times; "columns" names the values:
    schedule, pp, v, m   the schedule, its ranks, the chunks of each rank, the micro-batches
    nc           the micro-batches that a rank takes through a chunk before its next chunk
    tF, tI, tW   the times of a chunk's forward, input gradients and weight gradients
    tComm        the latency of a message
    mode         "async", or "fused": a forward and a backward that DualPipeV overlaps are a block,
                 which begins with the inputs of both and ends with the results of both
    makespan     the end of the last action
    bubble       the idle time of all ranks over their busy time
    span_bubble  the largest share of a rank's busy time in which it idles between its first and
                 its last action
    peak         of each rank: the most forwards that have begun while their weight gradients are
                 not done
    peak_input   of each rank: the same of their input gradients
    messages, actions   their numbers, of all ranks
  wrong.json   lists that cannot run:
    code         the kind of fault; "reason" names each fault
    mode         "async": a receive is posted one action ahead, and no send is awaited; "blocking":
                 a send is awaited where it is posted, and a receive is posted where it is awaited
    channels     from one rank to another: 1, or 2 if activations and gradients have one each; a
                 list with 1 could run with 2
    chunks       the rank of each chunk
    ranks        the actions of each rank: F forward, B backward, I and W its halves for inputs and
                 weights, with the chunk and the micro-batch

A message moves when both sides have posted it, and arrives a latency later.

The script fails unless the figures have the bubbles and the peaks that the papers state, and each
wrong list has the fault that its name says, and no other.

Usage, with Python alone; the second line fails if the fixture was not what the script makes:

  python3 tests/reference/pipeline_schedules.py
  git diff --exit-code tests/fixtures/pipeline
"""

import json
import pathlib
from collections import Counter, defaultdict
from typing import NamedTuple

from pipeline_rules import (Action, Schedule, dualpipe_v, gpipe, groups_of, interleaved,
                            one_forward_one_backward, without_blocks, zero_bubble_h1,
                            zero_bubble_v)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "pipeline"
MADE_BY = "tests/reference/pipeline_schedules.py, which says what stands here"


class Times(NamedTuple):
    forward: int
    input_gradients: int
    weight_gradients: int
    latency: int

    def of(self, action):
        whole = self.input_gradients + self.weight_gradients
        return dict(F=self.forward, I=self.input_gradients, W=self.weight_gradients,
                    B=whole)[action.kind]


EQUAL, UNEQUAL, LATE = Times(1, 1, 1, 0), Times(2, 3, 1, 0), Times(4, 5, 3, 1)
FAR = Times(2, 3, 2, 6)  # It matters when a receive is posted: a message outlasts an action.


class Clock:
    """Runs the lists of a schedule without other faults than a deadlock.

    `spans` has the start and the end of each block, by rank. `stuck` says which ranks wait forever.
    """

    def __init__(self, schedule, times, mode="async"):
        lists = [list(entries(schedule, blocks, mode)) for blocks in schedule.blocks]
        position, now, posted = [0] * len(lists), [0] * len(lists), {}
        self.spans = [[] for _ in lists]
        moved = True
        while moved:
            moved = False
            for rank, entries_of_rank in enumerate(lists):
                while position[rank] < len(entries_of_rank):
                    call, side, subject = entries_of_rank[position[rank]]
                    if call == "post":
                        posted[side, subject] = now[rank]
                    elif call == "wait":
                        posts = [posted.get((one, subject)) for one in ("send", "receive")]
                        if None in posts:
                            break
                        now[rank] = max(now[rank], max(posts) + times.latency)
                    else:
                        start = now[rank]
                        now[rank] += sum(map(times.of, subject))
                        self.spans[rank].append((start, now[rank]))
                    position[rank] += 1
                    moved = True
        waits = [(rank, *entries_of_rank[position[rank]])
                 for rank, entries_of_rank in enumerate(lists)
                 if position[rank] < len(entries_of_rank)]
        self.stuck = [f"rank {rank} waits to {side} {message}"
                      for rank, _, side, message in waits]


def entries(schedule, blocks, mode):
    """Yields what a rank does in turn: posts and waits (call, side, message), and blocks."""
    received = [schedule.received(block) for block in blocks] + [[]]
    if mode == "async":
        yield from (("post", "receive", message) for message in received[0])
    for number, block in enumerate(blocks):
        ahead = 0 if mode == "blocking" else 1
        yield from (("post", "receive", message) for message in received[number + ahead])
        yield from (("wait", "receive", message) for message in received[number])
        yield "run", None, block
        for message in schedule.sent(block):
            yield "post", "send", message
            if mode == "blocking":
                yield "wait", "send", message


def figures(schedule, times):
    """The figures of a row of the table, in the order of its columns."""
    spans = Clock(schedule, times).spans
    lists = schedule.lists()
    busy = [sum(map(times.of, actions)) for actions in lists]
    makespan = max(end for rank in spans for _, end in rank)
    idle = len(lists) * makespan - sum(busy)
    idle_within = max((rank[-1][1] - rank[0][0] - work) / work for rank, work in zip(spans, busy))
    return (makespan, round(idle / sum(busy), 9), round(idle_within, 9),
            [peak(actions, "BW") for actions in lists], [peak(actions, "BI") for actions in lists],
            sum(len(schedule.sent(actions)) for actions in lists), sum(map(len, lists)))


def peak(actions, ends):
    """The most forwards without one of the actions that end them."""
    held = most = 0
    for action in actions:
        held += action.kind == "F"
        most = max(most, held)
        held -= action.kind in ends
    return most


def faults(schedule, mode="async", channels=2):
    """The faults of a schedule, as pairs of a code and a reason. A check relies on those before it,
    so it is left out if they find a fault."""
    return (faults_of_contents(schedule) or faults_of_order(schedule)
            or faults_of_messages(schedule, channels)
            or [("deadlock", reason) for reason in Clock(schedule, EQUAL, mode).stuck])


def faults_of_contents(schedule):
    found, count = [], Counter()
    for rank, actions in enumerate(schedule.lists()):
        for action in actions:
            count[action] += 1
            if not (action.chunk < len(schedule.placement)
                    and action.micro_batch < schedule.micro_batches):
                found.append(("unknown", f"rank {rank} has {action}, which does not exist"))
            elif schedule.placement[action.chunk] != rank:
                found.append(("wrong-rank", f"rank {rank} has {action}, whose chunk is on rank "
                                            f"{schedule.placement[action.chunk]}"))
    found += [("duplicate", f"{action} is there {times} times")
              for action, times in count.items() if times > 1]
    for chunk in range(len(schedule.placement)):
        for i in range(schedule.micro_batches):
            there = {kind for kind in "FBIW" if Action(kind, chunk, i) in count}
            if "B" in there and there & set("IW"):
                found.append(("mixed-backward",
                              f"{Action('B', chunk, i)} is there, and a half of it"))
            needed = "FB" if "B" in there else "FIW"
            found += [("missing", f"{Action(kind, chunk, i)} is not there")
                      for kind in needed if kind not in there]
    return found


def faults_of_order(schedule):
    found = []
    for actions in schedule.lists():
        done = set()
        for action in actions:
            needs = [dict(B="F", I="F", W="I").get(action.kind)]
            needs = [{action._replace(kind=kind)} for kind in needs if kind]
            taken = schedule.input_of(action)
            if taken and not schedule.is_message(taken):
                kinds = "F" if taken.values == "activations" else "BI"
                needs.append({Action(kind, taken.source, taken.micro_batch) for kind in kinds})
            found += [("dependency", f"{action} is before {' or '.join(map(str, sorted(need)))}")
                      for need in needs if not need & done]
            done.add(action)
    return found


def faults_of_messages(schedule, channels):
    sent, received = defaultdict(list), defaultdict(list)
    for actions in schedule.lists():
        for messages, queues in ((schedule.sent(actions), sent),
                                 (schedule.received(actions), received)):
            for message in messages:
                ends = schedule.placement[message.source], schedule.placement[message.target]
                queues[ends, message.values if channels == 2 else ""].append(message)
    return [("fifo", f"rank {channel[0][1]} awaits {awaited}, but gets {arrived}")
            for channel, messages in sent.items()
            for arrived, awaited in zip(messages, received[channel]) if arrived != awaited]


def flexible(ranks, chunks, micro_batches, group):
    """The schedule of Llama 3, but a short last group joins another one, and where a group has
    fewer micro-batches than there are ranks, all forwards run first only if the order deadlocks."""
    schedule = interleaved(ranks, chunks, groups_of(micro_batches, group, shortest=ranks))
    deadlocks = group < ranks and faults(schedule)
    return gpipe(ranks, chunks, micro_batches, group) if deadlocks else schedule


COLUMNS = ["schedule", "pp", "v", "nc", "m", "tF", "tI", "tW", "tComm", "mode", "makespan",
           "bubble", "span_bubble", "peak", "peak_input", "messages", "actions"]


def schedules():
    """The schedules of the table by (name, ranks, chunks, group, micro-batches)."""
    result = {}
    for ranks, m in ((1, 4), (2, 4), (2, 8), (3, 7), (4, 4), (4, 8), (4, 12), (8, 8), (8, 16)):
        result["gpipe", ranks, 1, None, m] = gpipe(ranks, 1, m)
        result["1f1b", ranks, 1, None, m] = one_forward_one_backward(ranks, m)
        result["zb-h1", ranks, 1, None, m] = zero_bubble_h1(ranks, m)
        result["zb-v", ranks, 2, None, m] = zero_bubble_v(ranks, m)
        if m >= 2 * ranks:
            result["dualpipe-v", ranks, 2, None, m] = dualpipe_v(ranks, m)
        for chunks in (2, 3):
            if m % ranks == 0:
                groups = groups_of(m, ranks)
                result["interleaved", ranks, chunks, None, m] = interleaved(ranks, chunks, groups)
        for chunks, group in ((1, ranks), (2, ranks), (2, m), (3, ranks), (2, ranks - 2),
                              (2, ranks - 1), (2, ranks + 1)):
            if 1 <= group <= m:
                result["flexible", ranks, chunks, group, m] = flexible(ranks, chunks, m, group)
            if 1 <= group < ranks:
                result["gpipe", ranks, chunks, group, m] = gpipe(ranks, chunks, m, group)
    return result


def rows():
    for number, (key, schedule) in enumerate(schedules().items()):
        assert not faults(schedule), (key, faults(schedule))
        for times in (EQUAL, (UNEQUAL, LATE, FAR)[number % 3]):
            yield [*key, *times, "async", *figures(without_blocks(schedule), times)]
        if key[0] == "dualpipe-v":
            for times in (EQUAL, UNEQUAL):
                yield [*key, *times, "fused", *figures(schedule, times)]


def check_published(row):
    """Fails if the row of a schedule at equal times has other figures than its paper states."""
    name, ranks, chunks, group, m, *times, mode, _, bubble, _, peaks, _, _, _ = row
    if tuple(times) != EQUAL:
        return
    idle = round(bubble * 3 * m * chunks, 6)  # of a rank, in times of an action
    in_order = name in ("gpipe", "1f1b", "interleaved") and group is None
    if in_order or name == "flexible" and group >= ranks:
        assert idle == 3 * (ranks - 1), row
    elif name == "zb-h1" and m >= ranks or name == "zb-v" and m >= 2 * ranks - 1:
        assert idle == ranks - 1, row
    elif name == "dualpipe-v":
        assert idle == (2 if mode == "fused" else 1) * (ranks - 1), row
    most = {"gpipe": [m * chunks] * ranks, "zb-h1": [min(m, ranks)] * ranks,
            "1f1b": [min(m, ranks - rank) for rank in range(ranks)],
            "interleaved": [min(m * chunks, 2 * (ranks - rank) - 1 + (chunks - 1) * ranks)
                            for rank in range(ranks)],
            "zb-v": [2 * ranks] * ranks if m >= 2 * ranks - 1 else None,
            "dualpipe-v": [2 * ranks + 1] * ranks}.get(name)
    assert most in (None, peaks), row


def action_of(text):
    chunk, micro_batch = text[1:].split(".")
    return Action(text[0], int(chunk), int(micro_batch))


def two_ranks(first="F0.0 F0.1 B0.0 B0.1", second="F1.0 B1.0 F1.1 B1.1"):
    return Schedule([0, 1], 2, [[(action_of(text),) for text in actions.split()]
                                for actions in (first, second)])


def wrong_lists():
    """Yields name, code, mode, channels and lists."""
    def plain(name, code, *lists):
        return name, code, "async", 2, two_ranks(*lists)

    assert not faults(two_ranks())
    yield plain("missing forward", "missing", "F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 B1.1")
    yield plain("missing weight gradient", "missing", "F0.0 F0.1 I0.0 W0.0 I0.1")
    yield plain("duplicate backward", "duplicate", "F0.0 F0.1 B0.0 B0.1 B0.1")
    yield plain("whole and split backward mixed", "mixed-backward", "F0.0 F0.1 B0.0 W0.0 B0.1")
    yield plain("backward before forward", "dependency", "F0.0 F0.1 B0.0 B0.1",
                "B1.0 F1.0 F1.1 B1.1")
    yield plain("W before I", "dependency", "F0.0 F0.1 W0.0 I0.0 I0.1 W0.1")
    yield plain("wrong placement", "wrong-rank", "F0.0 F0.1 B0.0 B0.1 F1.1", "F1.0 B1.0 B1.1")
    yield plain("unknown micro-batch", "unknown", "F0.0 F0.1 B0.0 B0.1 F0.2")
    yield plain("two receives that wait for each other", "deadlock", "F0.0 B0.0 F0.1 B0.1",
                "F1.0 F1.1 B1.0 B1.1")
    yield plain("FIFO order violated", "fifo", "F0.0 F0.1 B0.0 B0.1", "F1.1 F1.0 B1.0 B1.1")
    yield ("naive blocking sends in 1F1B", "deadlock", "blocking", 2,
           one_forward_one_backward(2, 4))
    yield "V placement on one channel", "fifo", "async", 1, zero_bubble_v(2, 4)
    yield "interleaved with nc < pp", "deadlock", "async", 2, interleaved(4, 2, groups_of(8, 2))
    yield "short last group", "deadlock", "async", 2, interleaved(4, 3, groups_of(5, 4))


def case_of(name, code, mode, channels, schedule):
    found = faults(schedule, mode, channels)
    assert {kind for kind, _ in found} == {code}, (name, found)
    assert channels == 2 or not faults(schedule, mode), name
    return dict(name=name, mode=mode, channels=channels, micro_batches=schedule.micro_batches,
                chunks=schedule.placement, code=code,
                reason="; ".join(reason for _, reason in found),
                ranks=[" ".join(map(str, actions)) for actions in schedule.lists()])


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = list(rows())
    for row in table:
        check_published(row)
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in table)
    (FOLDER / "table.json").write_text(
        f'{{"made_by": {json.dumps(MADE_BY)},\n "columns": {json.dumps(COLUMNS)},\n "rows": [\n'
        f"{lines}\n]}}\n")
    cases = ",\n".join(json.dumps(case_of(*case)) for case in wrong_lists())
    (FOLDER / "wrong.json").write_text(
        f'{{"made_by": {json.dumps(MADE_BY)},\n "cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
