"""Event files as the Python package tensorboard writes them.

Writes tests/fixtures/tensorboard/:

  events.out.tfevents.1700000000.first     a run that is killed after step 5
  events.out.tfevents.1700000100.resumed   its continuation from a checkpoint after step 3
  expected.json    versions, and what was written to each file, event by event

It fails unless tensorboard's EventAccumulator, reading both files together, has dropped what the
second one's start declares void: steps 4 and 5 of the first.

Usage, with tensorboard installed (its version stands in expected.json):

  python3 tests/reference/tensorboard_events.py
"""

import json
import pathlib

import google.protobuf
import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

FOLDER = pathlib.Path(__file__).parent.parent / "fixtures" / "tensorboard"


def scalars(step, wall_time, scale):
    return dict(kind="scalars", wall_time=wall_time, step=step, scalars=[
        ["train/loss", scale * 7.25 / step], ["train/grad_norm", 1e-30 * step],
        ["train/tokens", 16384.0 * step], ["router/expert_load", -0.1], ["memory/bytes", 2.5e9]])


FILES = {
    "events.out.tfevents.1700000000.first":
        [dict(kind="version", wall_time=1700000000.25),
         dict(kind="start", wall_time=1700000000.25, step=1)]
        + [scalars(step, 1700000000.5 + step, 1) for step in range(1, 6)],
    "events.out.tfevents.1700000100.resumed":
        [dict(kind="version", wall_time=1700000100.0),
         dict(kind="start", wall_time=1700000100.0, step=4)]
        # Steps of one, two and six bytes.
        + [scalars(step, 1700000100.5 + step, 2) for step in (4, 5, 6, 300, 2**40)],
}


def event(description):
    result = Event(wall_time=description["wall_time"])
    if description["kind"] == "version":
        result.file_version = "brain.Event:2"
        return result
    result.step = description["step"]
    if description["kind"] == "start":
        result.session_log.status = SessionLog.START
    else:
        result.summary.CopyFrom(Summary(value=[
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in description["scalars"]]))
    return result


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, events in FILES.items():
        with open(FOLDER / name, "wb") as file:
            writer = RecordWriter(file)
            for description in events:
                writer.write(event(description).SerializeToString())
    accumulator = EventAccumulator(str(FOLDER), size_guidance={"scalars": 0})
    accumulator.Reload()
    read = [(scalar.step, scalar.value) for scalar in accumulator.Scalars("train/loss")]
    assert [step for step, _ in read] == [1, 2, 3, 4, 5, 6, 300, 2**40], read
    assert read[3] == (4, 2 * 7.25 / 4), read
    versions = dict(tensorboard=tensorboard.__version__, protobuf=google.protobuf.__version__)
    with open(FOLDER / "expected.json", "w") as file:
        json.dump(dict(versions=versions, files=FILES), file, indent=1)
        file.write("\n")


main()
