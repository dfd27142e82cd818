"""Playing a match, and what its times say."""

import statistics
import sys

from match.contestant import Contestant, ContestantError


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


def play(name, ours, theirs, rounds, **expected):
    """Runs the two commands (see Contestant) in alternation. Gives a row of the report: for each list of
    seconds that both measured its spread and the ratios, and both peaks of memory. A peer that fails
    gives a row that says why; Tessera failing raises ContestantError. `expected` names facts, such as the number of
    parameters, that must be so wherever a side tells them: else the two would not compute the same."""
    row = dict(peer=name, command=" ".join(str(word) for word in theirs))
    with Contestant(ours) as we:
        we.wait_until_ready()
        try:
            with Contestant(theirs) as they:
                they.wait_until_ready()
                return row | alternate(name, we, they, rounds, expected)
        except ContestantError as error:
            if we.process.poll() not in (None, 0):
                raise
            return row | dict(failure=str(error))


def alternate(name, we, they, rounds, expected):
    for side in (we, they):
        side.forget_peak_memory()
    processor = {we: [], they: []}
    for number in range(rounds):
        print(f"\r{name}: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for side in (we, they) if number % 2 == 0 else (they, we):
            processor[side].append(side.take_turn())
    memory = dict(our_peak_memory_bytes=we.peak_memory_bytes(),
                  their_peak_memory_bytes=they.peak_memory_bytes())
    our, their = we.finish(), they.finish()
    for side, facts in (("Tessera", our), (name, their)):
        require(side, facts, expected)
    times = {key: compared(our[key], their[key])
             for key in sorted(our) if key.endswith("seconds") and key in their}
    if not times:
        raise SystemExit(f"Tessera and {name} measured nothing in common")
    if min(processor[we] + processor[they]) > 0:  # the system counts in hundredths of a second
        times["processor_seconds"] = compared(processor[we], processor[they])
    # At once, for those who wait, and for whoever is stopped before the table.
    told = ", ".join(f"{key} {time['theirs']['median']:.4g} over {time['ours']['median']:.4g}"
                     for key, time in times.items())
    print(f"\r{name}: {told}", file=sys.stderr)
    kept = {key: their[key] for key in ("torch", "transformers", "idle_memory_bytes") if key in their}
    return dict(rounds=rounds, times=times) | memory | kept


def require(side, facts, expected):
    for key, value in expected.items():
        if facts.get(key, value) != value:
            raise SystemExit(f"{side} has {key} = {facts[key]} where {value} is due: the two sides would "
                             "not compute the same")
