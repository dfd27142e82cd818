"""The part of self_test about what the sides are told and about the devices that peers compute on."""

import argparse
import json
import pathlib
import sys
import tempfile
import unittest

from match import options as match_options
from match.start import SameStart, random_text
from peers import configuration
from peers.device import DEVICES, time_parts


class StandInTorch:
    """The module torch on a machine with a GPU, as far as peers/device.py needs it. The device does its
    work only when it is waited for; its clock counts what it did in milliseconds."""

    __version__ = "2"
    version = argparse.Namespace(cuda="13.0")

    def __init__(self, available=True):
        self.told, self.queue, self.now = [], [], 0
        torch = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                torch.queue.append(lambda: setattr(self, "time", torch.now))

            def elapsed_time(self, end):
                return end.time - self.time  # fails if the device has not come there

        self.cuda = argparse.Namespace(
            Event=Event, is_available=lambda: available, synchronize=self.synchronize,
            get_device_name=lambda: "H200", max_memory_allocated=lambda: 6, max_memory_reserved=lambda: 7,
            reset_peak_memory_stats=lambda: self.told.append("reset"))

    def work(self, milliseconds):
        def do():
            self.now += milliseconds
        self.queue.append(do)

    def synchronize(self):
        self.told.append(f"wait for {len(self.queue)}")
        for do in self.queue:
            do()
        self.queue.clear()


class Devices(unittest.TestCase):
    def test_marks_are_the_devices_own_and_wait_only_at_the_end(self):
        torch = StandInTorch()
        device = DEVICES["cuda"](torch)
        marks = [device.mark()]
        for milliseconds in (3, 40):
            torch.work(milliseconds)
            marks.append(device.mark())
        self.assertEqual(torch.told, [])
        self.assertEqual(device.seconds_between(marks), [0.003, 0.04])
        self.assertEqual(torch.told, ["wait for 5"])

    def test_parts_of_a_run_are_timed_apart(self):
        torch = StandInTorch()
        parts = dict(forward_backward=lambda: torch.work(3), update=lambda: torch.work(1))
        found = time_parts(DEVICES["cuda"](torch), parts, 2)
        self.assertEqual(found, dict(forward_backward_seconds=[0.003] * 2, seconds=[0.004] * 2))
        self.assertEqual(torch.told, ["wait for 9"])  # once, for all work and marks

    def test_a_clock_waits_for_the_device(self):
        torch = StandInTorch()
        device = DEVICES["cuda"](torch)
        begin = device.clock()
        torch.work(5)
        self.assertGreaterEqual(device.clock(), begin)
        self.assertEqual(torch.told, ["wait for 0", "wait for 1"])

    def test_peaks_count_after_what_came_before(self):
        torch = StandInTorch()
        device = DEVICES["cuda"](torch)
        torch.work(5)
        device.forget_peak_memory()
        self.assertEqual(torch.told, ["wait for 1", "reset"])
        self.assertEqual(device.facts(), dict(accelerator="H200", device_tensor_bytes=6,
                                              device_memory_bytes=7))

    def test_a_missing_device_is_said(self):
        torch = StandInTorch(available=False)
        with self.assertRaisesRegex(SystemExit, "built for CUDA 13.0 but finds no device"):
            DEVICES["cuda"](torch)
        torch.version = argparse.Namespace(cuda=None)
        with self.assertRaisesRegex(SystemExit, "PyTorch 2 was built without CUDA"):
            DEVICES["cuda"](torch)

    def test_processor(self):
        device = DEVICES["cpu"](None)
        self.assertEqual(device.seconds_between([1, 3, 6]), [2, 3])
        self.assertLessEqual(device.mark(), device.clock())
        self.assertEqual(device.facts(), {})


class Commands(unittest.TestCase):
    OPTIONS = dict(python="python", warmup=2, threads=3, tuned_memory=False, tessera="tessera", rounds=4)

    def words(self, **more):
        options = argparse.Namespace(**self.OPTIONS, **more)
        return match_options.tessera(options, "moe"), match_options.peer(options, "moe.py")

    def test_both_sides_run_on_the_device(self):
        ours, theirs = self.words(device="cuda", one_after_the_other=False)
        self.assertIn("--turns", ours)
        self.assertEqual(ours[ours.index("--repeats") + 1], 5)  # it waits after the last
        self.assertEqual(theirs[theirs.index("--device") + 1], "cuda")
        self.assertNotIn("--repeats", theirs)
        self.assertIsNone(match_options.tessera_idle(argparse.Namespace(device="cuda",
                                                                        one_after_the_other=False)))

    def test_without_turns_both_run_as_often_as_there_are_rounds(self):
        ours, theirs = self.words(device="cuda", one_after_the_other=True)
        self.assertNotIn("--turns", ours)
        for words in (ours, theirs):
            self.assertEqual(words[words.index("--repeats") + 1], 4)

    def test_configuration_is_overridden_as_tessera_does(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('[model]\nlayers = 4\n[train]\nsteps = 3\n')
            file.flush()
            options = argparse.Namespace(config=file.name, set=["model.layers=2", 'data.kind="none"'])
            self.assertEqual(configuration.load(options), dict(
                model=dict(layers=2), train=dict(steps=3), data=dict(kind="none")))
            self.assertEqual(configuration.words(options), [
                file.name, "--set", "model.layers=2", "--set", 'data.kind="none"'])
            refused = {"model.family=olmo": "a value of TOML", "layers=2": "names no section"}
            for wrong, reason in refused.items():
                options.set = [wrong]
                with self.assertRaisesRegex(SystemExit, reason):
                    configuration.load(options)
        with self.assertRaisesRegex(SystemExit, "cannot read .*: No such file"):
            configuration.load(argparse.Namespace(config=file.name, set=[]))


class Start(unittest.TestCase):
    """What both sides begin with, made by a stand-in for all programs: it writes its arguments to the
    folder that its option --output names."""

    PROGRAM = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
if "{failing}" in sys.argv:
    sys.exit("the reason")
folder.mkdir()
(folder / "arguments").write_text(json.dumps(sys.argv[1:]))
"""
    CONFIG = dict(data=dict(context=8), train=dict(global_batch=3, precision="fp32"))

    def options(self, failing="nothing"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name) / "program"
        program.write_text(self.PROGRAM.format(python=sys.executable, failing=failing))
        program.chmod(0o755)
        return argparse.Namespace(tessera=program, python=program, config="some.toml", set=["train.steps=3"])

    def test_both_sides_are_told_of_it(self):
        with SameStart(self.options(), self.CONFIG) as start:
            ours, theirs = start.our_words, start.their_words
            self.assertEqual(ours[:2], theirs[:2])
            data, model = ours[1], theirs[3]
            checkpoint = pathlib.Path(ours[3].removeprefix('checkpoint.initial="').removesuffix('"'))
            made = [json.loads((folder / "arguments").read_text()) for folder in (model, checkpoint, data)]
            self.assertEqual(made[0][1:], ["some.toml", "--set", "train.steps=3", "--output", str(model)])
            self.assertEqual(made[1], ["checkpoint", "import", str(model), "--output", str(checkpoint),
                                       "--precision", "fp32"])
            self.assertEqual(made[2][-4:], ["--context", "8", "--held-out", "0"])
            self.assertEqual(len(pathlib.Path(made[2][2]).read_text()), 3 * 8 - 1)
        self.assertFalse(data.exists())

    def test_a_program_that_fails_ends_the_comparison(self):
        for failing in ("some.toml", "import", "prepare"):
            with self.assertRaisesRegex(SystemExit, "ended with status 1: the reason"):
                SameStart(self.options(failing), self.CONFIG)
        options = self.options()
        options.python = "/no/such/python"
        with self.assertRaisesRegex(SystemExit, "cannot start /no/such/python"):
            SameStart(options, self.CONFIG)

    def test_text_is_printable_and_always_the_same(self):
        text = random_text(1000)
        self.assertEqual(text, random_text(1000))
        self.assertEqual(len(text), 999)
        self.assertTrue(text.isascii() and text.isprintable() and " " not in text)
