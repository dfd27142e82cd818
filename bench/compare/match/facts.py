"""What both sides of a match tell of themselves, from which it shows that they compute the same."""

import math

# Whose versions the peers tell.
PACKAGES = ("torch", "transformers", "tokenizers", "sentencepiece")
# Tessera's rates of useful work that a row keeps.
OUR_RATES = ("mfu", "mfu_of_hardware_peak")
# How far the first loss of an untrained model may be from the logarithm of its vocabulary.
LOSS_TOLERANCE = 0.5
# How far first losses may be from each other, of the loss, where both sides begin with the same weights
# and tokens.
SAME_LOSS_TOLERANCE = {"bf16": 2e-3, "fp32": 1e-5}


# What Tessera tells of a device, and a peer: memory that it took of it, and, of a peer, the part that
# tensors had.
OUR_DEVICE_MEMORY = "arena_bytes"
THEIR_DEVICE_MEMORY = ("device_memory_bytes", "device_tensor_bytes")


def device_facts(side, our, their):
    """What a row says of the accelerator, which must be one; nothing if Tessera computed on the
    processor. `side` names the peer."""
    if "accelerator" not in our:
        return {}
    if their.get("accelerator") != our["accelerator"]:
        raise SystemExit(f"Tessera ran on {our['accelerator']} and {side} on "
                         f"{their.get('accelerator', 'the processor')}: the two cannot be compared")
    held, tensors = (their.get(key) for key in THEIR_DEVICE_MEMORY)
    return dict(accelerator=our["accelerator"], our_peak_memory_bytes=our[OUR_DEVICE_MEMORY],
                their_peak_memory_bytes=held, their_tensor_bytes=tensors)


def require_same(side, facts, expected, untrained_loss=None):
    """Refuses a side that does not tell an `expected` fact as it is due (of a dictionary its keys), came
    to a `loss` that is no number, or whose `losses`, those of all steps where it tells them, do not
    begin at about `untrained_loss`."""
    for key, due in expected.items():
        found = facts.get(key)
        if isinstance(due, dict) and isinstance(found, dict):
            found = {name: found.get(name) for name in due}
        if found != due:
            told = f"tells {key} = {found}" if key in facts else f"does not tell {key}"
            raise SystemExit(f"{side} {told} where {due} is due: the two sides would not compute the "
                             "same")
    losses = facts.get("losses", [])
    for loss in [*losses, facts.get("loss", 0)]:
        if not math.isfinite(loss):
            raise SystemExit(f"{side} came to a loss of {loss}; lower optimizer.learning_rate")
    if losses and untrained_loss and abs(losses[0] - untrained_loss) > LOSS_TOLERANCE:
        raise SystemExit(f"{side}'s first loss is {losses[0]:.4g}; an untrained model's would be about "
                         f"{untrained_loss:.4g}")


def first_losses(our, their):
    """What a row says of the losses of the first step, if both sides tell them."""
    if not our.get("losses") or not their.get("losses"):
        return {}
    return dict(first_losses=dict(ours=our["losses"][0], theirs=their["losses"][0]))


def require_same_first_loss(row, precision):
    """Refuses a row, if its peer ran, whose sides began with different losses."""
    if "failure" in row:
        return
    ours, theirs = (row["first_losses"][side] for side in ("ours", "theirs"))
    if abs(ours - theirs) > SAME_LOSS_TOLERANCE[precision] * abs(theirs):
        raise SystemExit(f"{row['peer']} begins with a loss of {theirs:.7g} and Tessera with {ours:.7g}: "
                         "the two sides do not compute the same")
