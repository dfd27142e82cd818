"""What both sides of a match tell of themselves, from which it shows that they compute the same."""

import math

# Whose versions the peers tell.
PACKAGES = ("torch", "transformers", "tokenizers", "sentencepiece")
# How far the first loss of an untrained model may be from the logarithm of its vocabulary.
LOSS_TOLERANCE = 0.5


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
