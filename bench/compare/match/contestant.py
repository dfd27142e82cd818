"""One side of a match: a process that waits for its turn."""

import json
import os
import select
import subprocess
import tempfile
import time


class ContestantError(Exception):
    """A contestant ended, went silent or answered nonsense; the message says which and why."""


class Contestant:
    """A process that says "turn" when it is warm, computes once for every line it reads and says
    "turn" again, and at the end of its input prints a JSON object of what it measured. `seconds` is
    how long its start or one turn may take before it counts as hung."""

    def __init__(self, command, seconds=900):
        self.command = [str(word) for word in command]
        self.seconds = seconds
        self.errors = tempfile.TemporaryFile()
        self.unread = b""
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stderr=self.errors,
                                            stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise ContestantError(f"cannot start {self.command[0]}: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()

    def wait_until_ready(self):
        line = self._line()
        if line != b"turn":
            raise ContestantError(f"{self._name()} said {line[:200]!r}; expected \"turn\"")

    def take_turn(self):
        """Gives the processor's seconds that the turn took, all threads together."""
        begin = self._processor_seconds()
        try:
            self.process.stdin.write(b"\n")
        except BrokenPipeError:
            self._fail()
        self.wait_until_ready()
        return self._processor_seconds() - begin

    def forget_peak_memory(self):
        """Peak memory counts from now on, so that compilation and other preparation do not."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as clear:
            clear.write("5")

    def peak_memory_bytes(self):
        """The most memory that was resident, the program and its libraries included."""
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise ContestantError(f"the system does not tell {self._name()}'s peak memory")

    def _processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()  # the program's name may hold spaces
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")

    def finish(self):
        """No more turns: gives what the contestant measured."""
        self.process.stdin.close()
        rest = []
        deadline = time.monotonic() + self.seconds
        while part := self._read(deadline):
            rest.append(part)
        if self.process.wait() != 0:
            self._fail()
        try:
            return json.loads(self.unread + b"".join(rest))
        except ValueError as error:
            raise ContestantError(f"{self._name()} ended without its JSON object: {error}") from error

    def _line(self):
        deadline = time.monotonic() + self.seconds
        while b"\n" not in self.unread:
            part = self._read(deadline)
            if not part:
                self._fail()
            self.unread += part
        line, self.unread = self.unread.split(b"\n", 1)
        return line

    def _read(self, deadline):
        """What there is to read, waiting for it; nothing at the end."""
        left = max(0, deadline - time.monotonic())
        if not select.select([self.process.stdout], [], [], left)[0]:
            raise ContestantError(f"{self._name()} did nothing for {self.seconds} seconds")
        return os.read(self.process.stdout.fileno(), 1 << 16)

    def _fail(self):
        status = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "without a word"
        raise ContestantError(f"{self._name()} ended with status {status}: {reason}")

    def _name(self):
        return " ".join(os.path.basename(word) for word in self.command[:2])
