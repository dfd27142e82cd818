#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/worded.h"
#include "pipeline/schedule.h"
#include "program/operation.h"

namespace tessera {

// What the writer and the reader of a trace's file have in common. The file is JSON in the trace
// event format:
//
//   {"traceEvents": [for each rank: its names, the event of the whole step, its list, its
//   operations],
//    "displayTimeUnit": "ms",
//    "otherData": {"tessera_trace": version, "schedule": its name, "micro_batches": a number,
//                  "ranks_left_out": how many ranks of the run are missing, if any are,
//                  "ranks": [for each rank: its stage and coordinates in the mesh, its TraceOrigin,
//                            "products": each GemmShape once, and "groups": each TraceGroup
//                            once]}}
//
// In an event "pid" is the rank, "tid" its TraceTrack, and "cat" the block of the model, "step",
// "action" or "message". "args" of an operation has the phase, the layer, the cost and the matrix
// products as pairs of [index of the product, runs]; what is zero or empty is left out. If the
// operation calls other ranks, it has the indices of its "groups" and the "wire_bytes" that it
// sends. "args" of an entry of the list has its kind, chunk and micro-batch, and for a message the
// call and, where it is sent, its "bytes". A message also has two flow events, "s" in the post of
// its sender and "f" in the wait of its receiver. One of them is missing if its rank is.
//
// Version 4 had no groups and no bytes sent. Version 3 had one thread, "network", for all lanes
// that communicate. Version 2 had one rank, whose origin and products were fields of "otherData",
// and no list. A lane was the thread.

inline constexpr double kMicrosecondsPerSecond = 1e6;  // the format's times are in microseconds
inline constexpr const char* kTraceVersionKey = "tessera_trace";
inline constexpr const char* kRanksLeftOutKey = "ranks_left_out";
inline constexpr int kTraceVersion = 5;
inline constexpr int kTraceVersionWithoutGroups = 4;
inline constexpr int kTraceVersionOfOneNetwork = 3;
inline constexpr int kTracksOfOneNetwork = 3;
inline constexpr int kTraceVersionOfOneRank = 2;

// The categories of events that are no operations.
inline constexpr std::string_view kStepCategory = "step";  // the event that spans all others
inline constexpr std::string_view kActionCategory = "action";
inline constexpr std::string_view kMessageCategory = "message";

/// A thread of a rank in the file, from the top: 0 for its schedule, and then one for each Lane.
using TraceTrack = int;
inline constexpr TraceTrack kScheduleTrack = 0;
inline constexpr TraceTrack kTraceTracks = 1 + static_cast<int>(kLanes);

constexpr TraceTrack track_of(Lane lane) { return 1 + static_cast<int>(lane); }
/// Returns the lane of a track that is not the schedule's.
constexpr Lane lane_of(TraceTrack track) { return static_cast<Lane>(track - 1); }

/// Returns the id of a rank's thread. No two threads of a file have the same id, and none has the
/// id of its process, which Perfetto would take for a main thread and move to the top.
constexpr int64_t track_id(int rank, TraceTrack track, int tracks = kTraceTracks) {
  return int64_t{tracks} * (rank + 1) + track;
}

/// Returns the id of a message's flow, distinct in the whole file. `pipeline` is the first rank of
/// the pipeline within which it is sent.
std::string flow_id(int pipeline, const BoundaryMessage& message);

}  // namespace tessera
