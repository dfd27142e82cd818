"""The weights and tokens that both sides of a step begin with."""

import pathlib
import random
import string
import subprocess
import tempfile

from match.options import PEERS
from peers import configuration


def random_text(tokens):
    """One document that the bytes' tokenizer makes `tokens` tokens of, the end of the document among
    them."""
    generator = random.Random(1)
    return "".join(generator.choice(string.printable[:94]) for _ in range(tokens - 1))


class SameStart:
    """A folder with a model of transformers, its checkpoint of Tessera, and the tokens of one step: as
    many as every step has, so that each reads all of them. A context manager, at whose end the folder
    is gone."""

    def __init__(self, options, config):
        self.folder = tempfile.TemporaryDirectory(prefix="same-start-")
        path = pathlib.Path(self.folder.name)
        model, checkpoint, data = path / "model", path / "checkpoint", path / "data"
        self.our_words = ["--data", data, "--set", f'checkpoint.initial="{checkpoint}"']
        self.their_words = ["--data", data, "--weights", model]
        context = config["data"]["context"]
        (path / "text.txt").write_text(random_text(config["train"]["global_batch"] * context))
        try:
            run(options.python, PEERS / "model.py", *configuration.words(options), "--output", model)
            run(options.tessera, "checkpoint", "import", model, "--output", checkpoint, "--precision",
                config["train"]["precision"])
            run(options.tessera, "prepare", "--input", path / "text.txt", "--output", data, "--tokenizer",
                "bytes", "--context", context, "--held-out", 0)
        except BaseException:
            self.folder.cleanup()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()


def run(*command):
    """Runs a command to its end; what it says is shown if it fails."""
    words = [str(word) for word in command]
    try:
        found = subprocess.run(words, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        raise SystemExit(f"cannot start {words[0]}: {error.strerror}") from error
    if found.returncode:
        raise SystemExit(f"{' '.join(words)} ended with status {found.returncode}: {found.stderr.strip()}")
