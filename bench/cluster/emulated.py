"""Runs commands as MPI processes on emulated nodes (bench/cluster/run), for the scripts beside this file."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Open MPI may yield while it polls (sleep_on_yield.c). Messages go without a handshake, for which a link would wait.
WITHOUT_HANDSHAKE = {
    "btl_tcp_eager_limit": 1048576,
    "btl_tcp_rndv_eager_limit": 1048576,
    "btl_tcp_max_send_size": 1048576,
    "mpi_yield_when_idle": 1,
}


class EmulatedNodes:
    """Emulated nodes of one network: the options of bench/cluster/run that describe it, and those of mpirun."""

    def __init__(self, tessera, folder, mca):
        self.tessera, self.mca = str(Path(tessera).resolve()), mca
        self.library = Path(folder) / "sleep_on_yield.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.library, HERE / "sleep_on_yield.c"], check=True)

    def run(self, network, arguments, real_time=False, count=None):
        """Runs a command of tessera. Returns what it prints. Writes what links sent to the file `count`."""
        # In real time, other programs of the machine do not hold up ranks.
        command = [*(["chrt", "--rr", "1"] if real_time else []), HERE / "run", *network]
        if count:
            command += ["--bytes", count]
        for name, value in self.mca.items():
            command += ["--mca", name, value]
        command += ["env", f"LD_PRELOAD={self.library}", self.tessera, *arguments]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{sys.argv[0]}: {' '.join(map(str, arguments))}:\n{done.stderr}{done.stdout}")
        return done.stdout


def sent_bytes(run, count, levels):
    """Returns the bytes that links of each level of the network sent upwards in one step of all ranks, with the
    headers of packets. `run` takes a number of steps, and writes what links sent to the file `count`."""
    totals = []
    for steps in (1, 3):  # what a run sends beside its steps cancels out
        run(steps)
        totals.append([0] * levels)
        for line in Path(count).read_text().splitlines():
            level, sent = map(int, line.split())
            totals[-1][level] += sent
    return [(after - before) / 2 for before, after in zip(*totals)]
