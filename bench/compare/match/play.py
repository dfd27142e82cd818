"""Playing a match, and what its times say."""

import statistics
import sys

from match.contestant import Contestant, ContestantError
from match.facts import OUR_RATES, PACKAGES, device_facts, first_losses, require_same


def quantile(numbers, fraction):
    """Interpolated between neighbours; the median for 0.5."""
    ordered = sorted(numbers)
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def ratios(ours, theirs):
    """Their time over ours of each round: median, 10th and 90th percentile. A round's two turns follow
    each other, so what slows the machine for a while slows both."""
    pairs = [their / our for our, their in zip(ours, theirs, strict=True)]
    return dict(median=quantile(pairs, 0.5), low=quantile(pairs, 0.1), high=quantile(pairs, 0.9))


def spread(seconds):
    return dict(median=statistics.median(seconds), low=quantile(seconds, 0.1),
                high=quantile(seconds, 0.9))


def compared(ours, theirs):
    return dict(ours=spread(ours), theirs=spread(theirs), ratio=ratios(ours, theirs))


def compared_apart(ours, theirs):
    """Of sides that did not take turns: the ratio of the medians, between the least and the greatest
    that the 10th and 90th percentiles of both make."""
    our, their = spread(ours), spread(theirs)
    return dict(ours=our, theirs=their, ratio=dict(
        median=their["median"] / our["median"], low=their["low"] / our["high"],
        high=their["high"] / our["low"]))


def failed(row, reason):
    """The row of a peer without times; the reason is told at once, for those who wait."""
    print(f"\r{label(row)}: failed: {reason}", file=sys.stderr)
    return row | dict(failure=reason)


def label(row):
    """A row's peer and, where a peer is compared more than once, at what."""
    return ", ".join([row["peer"], *([row["case"]] if row.get("case") else [])])


def idle_memory(command):
    """What a contestant has in memory while it waits for its first turn; None without a command."""
    if command is None:
        return None
    with Contestant(command) as side:
        side.wait_until_ready()
        return side.resident_bytes()


def play(row, ours, theirs, rounds, expected, untrained_loss=None):
    """Runs the two commands (see Contestant) in alternation. Gives `row`, which names the `peer`, with
    for each list of seconds that both measured its spread and the ratios, and both peaks of memory. A
    peer that fails gives a row that says why; Tessera failing raises ContestantError. What both sides
    told must be `expected` and `untrained_loss` (see match/facts.py)."""
    row = row | dict(command=" ".join(str(word) for word in theirs))
    with Contestant(ours) as we:
        try:
            we.wait_until_ready()
            with Contestant(theirs) as they:
                they.wait_until_ready()
                measured = alternate(label(row), we, they, rounds)
                our, their = we.finish(), they.finish()
        except ContestantError as error:
            if error.contestant is we:
                raise
            return failed(row, str(error))
    row |= told_by_both(row, our, their, compared, expected, untrained_loss)
    processor = measured.pop("processor")
    if "accelerator" not in row:
        row |= measured
        # A script that starts the program in its stead computes nothing itself.
        if min(processor[0] + processor[1]) > 0:
            row["times"]["processor_seconds"] = compared(*processor)
    return finished(row, rounds)


def play_one_after_the_other(row, ours, theirs, rounds, expected, untrained_loss=None, read=dict,
                             seconds=3600):
    """As play(), but runs Tessera to its end and then the peer, each of which has `seconds` for that:
    for sides that do not fit beside each other into one device's memory. Each runs as it does alone,
    without a wait for every run, and its memory is what it tells of the device. `read` makes facts of
    what Tessera told."""
    row = row | dict(command=" ".join(str(word) for word in theirs))
    facts = []
    for name, command in (("Tessera", ours), (row["peer"], theirs)):
        print(f"\r{label(row)}: {name} runs", end="", file=sys.stderr, flush=True)
        try:
            with Contestant(command, seconds) as side:
                facts.append(side.finish())
        except ContestantError as error:
            if name == "Tessera":
                raise
            return failed(row, str(error))
    our, their = facts
    return finished(row | told_by_both(row, read(our), their, compared_apart, expected, untrained_loss),
                    rounds)


def told_by_both(row, our, their, compare, expected, untrained_loss):
    """What the row says of the facts that the sides told, which must be as play() has it."""
    for side, facts in (("Tessera", our), (label(row), their)):
        require_same(side, facts, expected, untrained_loss)
    times = {key: compare(our[key], their[key])
             for key in sorted(our) if key.endswith("seconds") and key in their}
    if not times:
        raise SystemExit(f"Tessera and {label(row)} measured nothing in common")
    return (dict(times=times, their_idle_memory_bytes=their.get("idle_memory_bytes")) |
            first_losses(our, their) |
            {key: their[key] for key in PACKAGES if key in their} |
            {key: our[key] for key in OUR_RATES if key in our} | device_facts(label(row), our, their))


def finished(row, rounds):
    """The row, told at once, for those who wait, and for whoever is stopped before the table."""
    told = ", ".join(f"{key} {time['theirs']['median']:.4g} over {time['ours']['median']:.4g}"
                     for key, time in row["times"].items())
    print(f"\r{label(row)}: {told}", file=sys.stderr)
    return row | dict(rounds=rounds)


def alternate(name, we, they, rounds):
    """The turns; gives both sides' processor times and peaks of memory."""
    for side in (we, they):
        side.forget_peak_memory()
    processor = {we: [], they: []}
    for number in range(rounds):
        print(f"\r{name}: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for side in (we, they) if number % 2 == 0 else (they, we):
            processor[side].append(side.take_turn())
    return dict(processor=(processor[we], processor[they]),
                our_peak_memory_bytes=we.peak_memory_bytes(),
                their_peak_memory_bytes=they.peak_memory_bytes())
