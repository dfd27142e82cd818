"""Where a peer computes and how time is taken there. The module torch is handed over, so that self_test
can do without it."""

import time


class Processor:
    """The processor, whose work is done when a call returns."""

    name = "cpu"

    def __init__(self, _):
        pass

    def clock(self):
        """The time in seconds at which all work so far was done."""
        return time.perf_counter()

    def mark(self):
        """The end of the work so far, for seconds_between()."""
        return time.perf_counter()

    def seconds_between(self, marks):
        """The seconds from each mark to the next one."""
        return [end - begin for begin, end in zip(marks, marks[1:])]

    def forget_peak_memory(self):
        """The peaks of facts() count from now on."""

    def facts(self):
        """What is told of the device, its peaks of memory among it."""
        return {}


class Cuda:
    """The current CUDA device. It works behind the host: a clock waits for it, and a mark is an event
    that the device itself sees, for which nothing waits."""

    name = "cuda"

    def __init__(self, torch):
        if not torch.cuda.is_available():
            built = torch.version.cuda
            raise SystemExit(f"PyTorch {torch.__version__} was built " + (
                f"for CUDA {built} but finds no device: a GPU and a driver for that CUDA are needed"
                if built else "without CUDA: install a build with it"))
        self.torch = torch

    def clock(self):
        self.torch.cuda.synchronize()
        return time.perf_counter()

    def mark(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, marks):
        self.torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in zip(marks, marks[1:])]

    def forget_peak_memory(self):
        self.torch.cuda.synchronize()
        self.torch.cuda.reset_peak_memory_stats()

    def facts(self):
        """The most that tensors took, and the most that PyTorch held of the device for them."""
        cuda = self.torch.cuda
        return dict(accelerator=cuda.get_device_name(),
                    device_tensor_bytes=cuda.max_memory_allocated(),
                    device_memory_bytes=cuda.max_memory_reserved())


def time_parts(device, parts, repeats):
    """Runs the parts, functions by name, in their order again and again without waiting for the device.
    Gives lists of `seconds`, of the whole, from end to end, and of each part but the last one."""
    marks = [device.mark()]
    for _ in range(repeats):
        for part in parts.values():
            part()
            marks.append(device.mark())
    seconds = device.seconds_between(marks)
    of_parts = {f"{name}_seconds": seconds[number::len(parts)]
                for number, name in enumerate(list(parts)[:-1])}
    whole = [sum(seconds[first:first + len(parts)]) for first in range(0, len(seconds), len(parts))]
    return of_parts | dict(seconds=whole)


DEVICES = {device.name: device for device in (Processor, Cuda)}
