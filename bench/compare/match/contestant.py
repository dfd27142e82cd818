"""One side of a match: a process that waits for its turn."""

import ctypes
import json
import os
import select
import subprocess
import tempfile
import time

LONGEST_LINE = 1 << 20  # bytes, more than any contestant has to say at a turn
REST_SECONDS = 0.1  # how long a contestant may take from its line to its wait


class ContestantError(Exception):
    """A contestant ended, went silent or answered nonsense; the message says which and why, and
    `contestant` is who it was."""

    def __init__(self, contestant, message):
        super().__init__(message)
        self.contestant = contestant


class Contestant:
    """A process that says "turn" when it is warm, computes once for every line it reads and says
    "turn" again, and at the end of its input prints a JSON object of what it measured. `seconds` is how
    long its start or one turn may take before it counts as hung."""

    def __init__(self, command, seconds=900):
        self.command = [str(word) for word in command]
        self.seconds = seconds
        self.errors = tempfile.TemporaryFile()
        self.unread = b""
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stderr=self.errors,
                                            stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise self._error(f"cannot be started: {error.strerror}") from error

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
            raise self._error(f"said {line[:200]!r}; expected \"turn\"")

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
        return self._memory("VmHWM:")

    def resident_bytes(self):
        """The memory that is resident now, the program and its libraries included."""
        return self._memory("VmRSS:")

    def finish(self):
        """No more turns: gives what the contestant measured."""
        self.process.stdin.close()
        rest = []
        deadline = time.monotonic() + self.seconds
        while part := self._read(deadline):
            rest.append(part)
        if self._status() != 0:
            self._fail()
        said = self.unread + b"".join(rest)
        try:
            facts = json.loads(said)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise self._error(f"ended with {said[:200]!r}; expected a JSON object")
        return facts

    def _memory(self, key):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith(key):
                    return int(line.split()[1]) * 1024
        self._fail()  # a process that has ended has no memory

    def _processor_seconds(self):
        """By the process's own clock, which counts nanoseconds; /proc's counts hundredths of a second.
        Seen from outside, the clock stands still between the kernel's ticks while the process runs, and is
        right once it waits. So we let it come to rest first: it said its line, and waits for ours."""
        deadline = time.monotonic() + REST_SECONDS
        while self._runs() and time.monotonic() < deadline:
            time.sleep(0.0001)
        clock = ctypes.c_int()
        number = ctypes.CDLL(None).clock_getcpuclockid(self.process.pid, ctypes.byref(clock))
        if number != 0:
            raise self._error(f"has no clock of processor time: {os.strerror(number)}")
        return time.clock_gettime(clock.value)

    def _runs(self):
        """Whether the main thread is on a processor, or waits for one."""
        with open(f"/proc/{self.process.pid}/stat") as stat:  # "1 (a name) R ...", and ) may be in the name
            return stat.read().rpartition(")")[2].split()[0] == "R"

    def _line(self):
        deadline = time.monotonic() + self.seconds
        while b"\n" not in self.unread:
            part = self._read(deadline)
            if not part:
                self._fail()
            self.unread += part
            if len(self.unread) > LONGEST_LINE:
                raise self._error(f"said {self.unread[:200]!r} and on without an end of line")
        line, self.unread = self.unread.split(b"\n", 1)
        return line

    def _read(self, deadline):
        """What there is to read, waiting for it; nothing at the end."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
            raise self._error(f"did not answer within {self.seconds} seconds")
        return os.read(self.process.stdout.fileno(), 1 << 16)

    def _status(self):
        try:
            return self.process.wait(self.seconds)
        except subprocess.TimeoutExpired as error:
            raise self._error(f"did not end within {self.seconds} seconds") from error

    def _fail(self):
        status = self._status()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "without a word"
        raise self._error(f"ended with status {status}: {reason}")

    def _error(self, message):
        return ContestantError(self, " ".join(os.path.basename(word) for word in self.command[:2]) +
                               " " + message)
