#include "pipeline/run_trace.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/error_of.h"
#include "support/sample_trace.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

/// The file of two ranks with something changed.
class RunTraceTest : public ::testing::Test {
 protected:
  Json written(const RunTrace& run = testing::sample_run()) const {
    write_trace(path_, run);
    return Json::parse(read_file(path_));
  }
  std::string error(const std::function<void(Json&)>& damage) const {
    Json json = written();
    damage(json);
    return error_of_text(json.dump());
  }
  std::string error_of_text(const std::string& text) const {
    folder_.write("trace.json", text);
    return error_of([&] { read_trace(path_); });
  }
  /// Does something to the event of that name of a rank.
  std::string error_of_event(const std::string& name, int rank,
                             const std::function<void(Json&)>& damage) const {
    return error([&](Json& json) { damage(event(json, name, rank)); });
  }
  static Json& event(Json& json, const std::string& name, int rank) {
    for (Json& event : json["traceEvents"]) {
      if (event["ph"] == "X" && event["name"] == name && event["pid"] == rank) return event;
    }
    throw Error("no event {} of rank {}", name, rank);
  }
  /// Lets the second event of a rank call two groups.
  static RankTrace with_groups(RankTrace trace) {
    trace.step.groups = {
        {.axes = {"tensor", "data.0"}, .stages = {}, .first_rank = 1, .ranks = 6},
        {.axes = {"pipeline"}, .stages = {0, 3}, .first_rank = 0, .ranks = 2},
    };
    trace.step.events[1].groups = {1, 0};
    trace.step.events[1].wire_bytes = 1536;
    return trace;
  }
  static std::vector<Json> events_of_phase(const Json& json, const std::string& phase) {
    std::vector<Json> events;
    for (const Json& event : json["traceEvents"]) {
      if (event["ph"] == phase) events.push_back(event);
    }
    return events;
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_ / "trace.json";
};

TEST_F(RunTraceTest, ComesBackAsItWasWritten) {
  RunTrace expected = testing::sample_run();
  expected.ranks[1].coordinates = {{"data", 0}, {"tensor", 3}};
  expected.ranks[1].step.clock_uncertainty = 2.5e-6;
  expected.ranks[0].step.recording_seconds = 1e-4;
  expected.ranks[1] = with_groups(expected.ranks[1]);
  expected.ranks[0].list[1].bytes = 4096;
  write_trace(path_, expected);
  RunTrace read = read_trace(path_);
  // Times are rounded to nanoseconds.
  const auto near = [](auto& actual, const auto& expected) {
    EXPECT_NEAR(actual.start, expected.start, 1e-9);
    EXPECT_NEAR(actual.duration, expected.duration, 1e-9);
    actual.start = expected.start;
    actual.duration = expected.duration;
  };
  ASSERT_EQ(read.ranks.size(), expected.ranks.size());
  for (size_t rank = 0; rank < read.ranks.size(); ++rank) {
    RankTrace& found = read.ranks[rank];
    const RankTrace& trace = expected.ranks[rank];
    near(found.step, trace.step);
    ASSERT_EQ(found.step.events.size(), trace.step.events.size());
    for (size_t i = 0; i < trace.step.events.size(); ++i) {
      near(found.step.events[i], trace.step.events[i]);
    }
    ASSERT_EQ(found.list.size(), trace.list.size());
    for (size_t i = 0; i < trace.list.size(); ++i) near(found.list[i], trace.list[i]);
  }
  EXPECT_EQ(read, expected);
}

TEST_F(RunTraceTest, SaysWhichDeviceItIsOf) {
  RunTrace run = testing::sample_run();
  TraceOrigin& origin = run.ranks[1].step.origin;
  origin.device = Device::cuda;
  origin.accelerator = "NVIDIA H200";
  Json json = written(run);
  EXPECT_EQ(read_trace(path_).ranks[1].step.origin, origin);
  Json& entry = json["otherData"]["ranks"][1];
  entry["device"] = "tpu";
  EXPECT_THAT(error_of_text(json.dump()), HasSubstr("'device' is 'tpu', expected one of cpu"));
  entry["device"] = "hip";
  entry.erase("accelerator");
  EXPECT_THAT(error_of_text(json.dump()),
              HasSubstr("in the ranks' entry 2, 'accelerator' is missing"));
}

TEST_F(RunTraceTest, RanksAreProcessesAndLanesThreads) {
  RunTrace run = testing::sample_run();
  run.ranks[1].coordinates = {{"tensor", 3}};
  // What the network does may overlap with what computes.
  std::vector<TraceEvent>& events = run.ranks[1].step.events;
  events[2].lane = Lane::exchanges;
  events[2].start = events[1].start;
  Json json = written(run);
  std::map<int, std::map<int64_t, std::string>> tracks;
  std::map<int, std::string> processes;
  for (const Json& event : events_of_phase(json, "M")) {
    const int rank = event["pid"];
    if (event["name"] == "process_name") processes[rank] = event["args"]["name"];
    if (event["name"] == "process_sort_index") {
      EXPECT_EQ(event["args"]["sort_index"], rank);
    }
    if (event["name"] == "thread_name") tracks[rank][event["tid"]] = event["args"]["name"];
  }
  EXPECT_EQ(processes,
            (std::map<int, std::string>{{0, "rank 0: stage 0"}, {1, "rank 1: stage 1, tensor 3"}}));
  const auto track = [&](const std::string& name, int rank) {
    return tracks.at(rank).at(event(json, name, rank)["tid"]);
  };
  for (const int rank : {0, 1}) {
    EXPECT_EQ(track("step 7", rank), "schedule");
    EXPECT_EQ(track("forward 0", rank), "schedule");
    EXPECT_EQ(track("wait receive gradients 0", 0), "schedule");
    EXPECT_EQ(track("linear", rank), "compute");
    EXPECT_EQ(track("rms_norm", rank), rank == 0 ? "compute" : "exchanges");
    // The schedule is above the operations, for viewers that sort by ids too.
    EXPECT_EQ(tracks.at(rank).begin()->second, "schedule");
  }
  EXPECT_EQ(read_trace(path_).of_rank(1).step.events[2].lane, Lane::exchanges);
  // On one lane it may not.
  events[2].lane = Lane::compute;
  write_trace(path_, run);
  EXPECT_THAT(error_of([&] { read_trace(path_); }), HasSubstr("begins before"));
}

TEST_F(RunTraceTest, IsTheFormatThatViewersOpen) {
  const Json json = written();
  std::set<std::pair<int, int64_t>> threads;
  for (const Json& event : events_of_phase(json, "X")) {
    for (const char* key : {"ts", "dur", "pid", "tid"}) EXPECT_TRUE(event[key].is_number()) << key;
    for (const char* key : {"name", "cat"}) EXPECT_TRUE(event[key].is_string()) << key;
    // Perfetto takes a thread with the process's id for its main one.
    EXPECT_NE(event["pid"], event["tid"]);
    threads.emplace(event["pid"], event["tid"]);
  }
  EXPECT_EQ(threads.size(), 4U) << "two of each rank";
  Json copy = json;
  EXPECT_NEAR(event(copy, "step 7", 0)["dur"].get<double>(), 10000, 1e-6);  // microseconds
  EXPECT_EQ(json["otherData"]["ranks"][1]["products"].size(), 3U) << "each distinct product once";
}

/// Perfetto gives slices a colour by their names without numbers, Chrome by `cname`.
TEST_F(RunTraceTest, ActionsHaveTheColoursOfTheirKindAndChunk) {
  RankTrace trace = testing::sample_trace();
  trace.chunks = {3, 8};
  double time = 0;
  for (const auto kind : {ActionKind::forward, ActionKind::backward, ActionKind::input_gradients,
                          ActionKind::weight_gradients}) {
    for (const int chunk : {3, 8}) {
      for (const int micro_batch : {0, 1}) {
        time += 1e-4;
        trace.list.push_back({.entry = ChunkAction{kind, chunk, micro_batch},
                              .start = trace.step.start + time,
                              .duration = 1e-4});
      }
    }
  }
  const Json json = written({.schedule = {"interleaved", 2}, .ranks = {trace}});
  std::map<std::string, std::set<std::string>> colours, kinds_and_chunks;
  std::set<std::string> all_colours;
  for (const Json& event : events_of_phase(json, "X")) {
    if (event["cat"] != "action") continue;
    const std::string name = event["name"];
    EXPECT_TRUE(name.ends_with(event["args"]["micro_batch"].dump())) << name;
    const std::string colour = event["cname"];
    const std::string without_number = name.substr(0, name.rfind(' '));
    colours[without_number].insert(colour);
    kinds_and_chunks[without_number].insert(event["args"]["kind"].dump() +
                                            event["args"]["chunk"].dump());
    all_colours.insert(colour);
  }
  EXPECT_EQ(colours.size(), 8U);
  EXPECT_EQ(all_colours.size(), 8U);
  for (const auto& [name, found] : colours) EXPECT_EQ(found.size(), 1U) << name;
  for (const auto& [name, found] : kinds_and_chunks) EXPECT_EQ(found.size(), 1U) << name;
  EXPECT_TRUE(colours.contains("weight gradients b"));
  EXPECT_EQ(read_trace(path_).ranks[0].list.size(), 16U);
}

TEST_F(RunTraceTest, FlowsGoFromTheSlicesOfPostsToThoseOfWaits) {
  const Json json = written();
  const std::vector<Json> begins = events_of_phase(json, "s"), ends = events_of_phase(json, "f");
  ASSERT_EQ(begins.size(), 2U);
  ASSERT_EQ(ends.size(), 2U);
  // The slice of a flow's thread at its time.
  const auto slice = [&](const Json& flow) {
    std::string name;
    for (const Json& event : events_of_phase(json, "X")) {
      if (event["tid"] != flow["tid"] || event["cat"] != "message") continue;
      const double start = event["ts"];
      if (flow["ts"] >= start && flow["ts"] < start + event["dur"].get<double>()) {
        name = event["name"];
      }
    }
    return name;
  };
  for (const Json& begin : begins) {
    const auto end =
        std::ranges::find(ends, begin["id"], [](const Json& flow) { return flow["id"]; });
    ASSERT_NE(end, ends.end());
    EXPECT_NE(begin["pid"], (*end)["pid"]);
    EXPECT_LE(begin["ts"], (*end)["ts"]);
    for (const char* key : {"name", "cat"}) EXPECT_EQ(begin[key], (*end)[key]);
    EXPECT_EQ((*end)["bp"], "e");
    EXPECT_EQ(slice(begin), "post send " + begin["name"].get<std::string>() + " 0");
    EXPECT_EQ(slice(*end), "wait receive " + begin["name"].get<std::string>() + " 0");
  }
}

TEST_F(RunTraceTest, GivesTheRankThatIsAskedFor) {
  const RunTrace run = testing::sample_run();
  EXPECT_EQ(run.of_rank(1).stage, 1);
  EXPECT_EQ(error_of([&] { (void)run.of_rank(2); }),
            "the trace has no rank 2, expected one from 0 to 1");
}

TEST_F(RunTraceTest, RefusesWhatIsNoTrace) {
  EXPECT_THAT(error_of([&] { read_trace(folder_ / "none.json"); }), HasSubstr("none.json"));
  EXPECT_THAT(error_of_text(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_text("{\"traceEvents\": [{\"name\": \"lin"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_text(std::string("{}\0", 3)), HasSubstr("null byte"));
  for (const char* foreign :
       {"[]", "7", "{}", R"({"traceEvents": [{"name": "other", "ph": "B", "ts": 1}]})",
        R"({"otherData": 3})", R"({"otherData": {"version": "My Application v1.0"}})"}) {
    EXPECT_THAT(error_of_text(foreign), HasSubstr("no trace of a training step")) << foreign;
  }
  EXPECT_THAT(error([](Json& json) { json["otherData"]["tessera_trace"] = 1; }),
              HasSubstr("found a trace of version 1, expected one from 2 to 5"));
  EXPECT_THAT(error_of_text(R"({"otherData": {"tessera_trace": 2, "tessera_trace": 2}})"),
              HasSubstr("twice"));
  std::string deep(100, '[');
  EXPECT_THAT(error_of_text(deep), HasSubstr("nested deeper"));
}

TEST_F(RunTraceTest, RefusesNoStepAndSeveral) {
  EXPECT_THAT(error([](Json& json) {
                Json& events = json["traceEvents"];
                events.erase(std::ranges::find(events, event(json, "step 7", 1)));
              }),
              HasSubstr("in the events of rank 1, there is no event of a whole step"));
  EXPECT_THAT(
      error([](Json& json) { json["traceEvents"].push_back(Json(event(json, "step 7", 1))); }),
      HasSubstr("more than one step of rank 1"));
  EXPECT_THAT(error_of_event("step 7", 1, [](Json& event) { event["args"]["step"] = 8; }),
              HasSubstr("the step is 8, and that of other ranks is 7"));
}

TEST_F(RunTraceTest, NamesTheDamagedField) {
  const auto run = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["otherData"][key] = value; });
  };
  EXPECT_THAT(run("schedule", 1), HasSubstr("in otherData, 'schedule' is not a text"));
  EXPECT_THAT(run("micro_batches", -1), HasSubstr("'micro_batches' is not a whole number"));
  EXPECT_THAT(run("ranks_left_out", "two"), HasSubstr("'ranks_left_out' is not a whole number"));
  EXPECT_THAT(run("ranks", "all"), HasSubstr("'ranks' is not a list"));
  EXPECT_THAT(run("ranks", Json::array()), HasSubstr("'ranks' is empty"));
  EXPECT_THAT(run("ranks", Json::array({2})), HasSubstr("not an object"));
  const auto rank = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["otherData"]["ranks"][1][key] = value; });
  };
  EXPECT_THAT(rank("threads", 0), HasSubstr("in the ranks' entry 2, 'threads' is not a whole"));
  EXPECT_THAT(rank("threads", 1.5), HasSubstr("'threads'"));
  EXPECT_THAT(rank("threads", uint64_t{1} << 63), HasSubstr("'threads'"));
  EXPECT_THAT(rank("gemm_peak", -1), HasSubstr("'gemm_peak'"));
  EXPECT_THAT(rank("gemm_peak", nullptr), HasSubstr("'gemm_peak'"));
  EXPECT_THAT(rank("precision", 16), HasSubstr("'precision' is not a text"));
  EXPECT_THAT(rank("precision", "fp16"),
              AllOf(HasSubstr("trace.json is damaged"), HasSubstr(kTraceAdvice),
                    HasSubstr("'precision' is 'fp16', expected one of bf16, fp32, fp64")));
  EXPECT_THAT(rank("features", "avx2"), HasSubstr("'features' is not a list"));
  EXPECT_THAT(rank("features", {"avx2", 512}), HasSubstr("'features' is not a text"));
  EXPECT_THAT(rank("products", "none"), HasSubstr("'products' is not a list"));
  EXPECT_THAT(rank("rank", 0), HasSubstr("rank 0 follows rank 0"));
  EXPECT_THAT(rank("stage", "first"), HasSubstr("'stage'"));
  EXPECT_THAT(rank("pipeline", -1), HasSubstr("'pipeline'"));
  EXPECT_THAT(rank("chunks", {0.5}), HasSubstr("'chunks' is not a whole number"));
  EXPECT_THAT(rank("coordinates", {1}), HasSubstr("'coordinates' is not an object"));
  EXPECT_THAT(rank("coordinates", {{"data", -1}}), HasSubstr("'coordinates' is not a whole"));
  EXPECT_THAT(rank("clock_uncertainty_seconds", -1), HasSubstr("'clock_uncertainty_seconds'"));
  const auto product = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["otherData"]["ranks"][1]["products"][1][key] = value; });
  };
  EXPECT_THAT(product("m", 0), HasSubstr("in product 1 of rank 1, 'm'"));
  EXPECT_THAT(product("k", int64_t{1} << 41), HasSubstr("'k'"));
  EXPECT_THAT(product("lda", 1), HasSubstr("'lda'"));
  EXPECT_THAT(product("input", "i32"), HasSubstr("'input' is 'i32', expected f32, bf16 or f64"));
  EXPECT_THAT(product("output", "f64"), HasSubstr("no product of"));
  EXPECT_THAT(product("accumulate", 1), HasSubstr("neither true nor false"));
}

TEST_F(RunTraceTest, NamesTheDamagedEvent) {
  const auto event = [&](const char* key, const Json& value) {
    return error_of_event("linear", 1, [&](Json& event) { event[key] = value; });
  };
  EXPECT_THAT(event("ph", "B"), AllOf(HasSubstr("is damaged: in event "), HasSubstr("'ph'")));
  EXPECT_THAT(event("dur", "long"), HasSubstr("'dur'"));
  EXPECT_THAT(event("dur", -1), HasSubstr("'dur'"));
  EXPECT_THAT(event("ts", 1e300), HasSubstr("'ts'"));
  EXPECT_THAT(event("dur", 2e12), HasSubstr("'dur' is not a number from 0 to 1000000000000"));
  EXPECT_THAT(event("args", 3), HasSubstr("not an object"));
  EXPECT_THAT(event("pid", 7), HasSubstr("'pid' is 7, which is none of the ranks"));
  EXPECT_THAT(event("tid", 3), HasSubstr("'tid' is not a whole number from 12 to 17"));
  EXPECT_THAT(error_of_event("linear", 1, [](Json& event) { event.erase("cat"); }),
              HasSubstr("'cat' is missing"));
  EXPECT_THAT(error_of_event("linear", 1, [](Json& event) { event = 5; }),
              HasSubstr("not an object"));
  const auto about = [&](const char* key, const Json& value) {
    return error_of_event("linear", 1, [&](Json& event) { event["args"][key] = value; });
  };
  EXPECT_THAT(about("flops", -2), HasSubstr("'flops'"));
  EXPECT_THAT(about("backward_flops", "all"), HasSubstr("'backward_flops'"));
  EXPECT_THAT(about("layer", -2), HasSubstr("'layer'"));
  EXPECT_THAT(about("products", Json::parse("[[3, 1]]")), HasSubstr("whole number from 0 to 2"));
  EXPECT_THAT(about("products", Json::parse("[[0, 0]]")), HasSubstr("whole number from 1"));
  EXPECT_THAT(about("products", Json::parse("[[0]]")), HasSubstr("no [product, runs]"));
  EXPECT_THAT(
      error_of_event("step 7", 0, [](Json& event) { event["args"]["recording_seconds"] = 1; }),
      HasSubstr("'recording_seconds' is more than the step takes"));
}

TEST_F(RunTraceTest, NamesTheDamagedGroup) {
  RunTrace run = testing::sample_run();
  run.ranks[1] = with_groups(run.ranks[1]);
  const Json good = written(run);
  const auto error_of_group = [&](const std::function<void(Json&)>& damage) {
    Json json = good;
    damage(json["otherData"]["ranks"][1]["groups"][1]);
    return error_of_text(json.dump());
  };
  const auto group = [&](const char* key, const Json& value) {
    return error_of_group([&](Json& group) { group[key] = value; });
  };
  EXPECT_THAT(group("axes", Json::array()), HasSubstr("in group 1 of rank 1, 'axes' is empty"));
  EXPECT_THAT(group("axes", "data"), HasSubstr("'axes' is not a list"));
  EXPECT_THAT(group("axes", Json::array({3})), HasSubstr("'axes' is not a text"));
  EXPECT_THAT(group("stages", Json::array({-1})), HasSubstr("'stages' is not a whole number"));
  EXPECT_THAT(group("first_rank", -1), HasSubstr("'first_rank' is not a whole number from 0"));
  EXPECT_THAT(group("ranks", 0), HasSubstr("'ranks' is not a whole number from 1"));
  EXPECT_THAT(error_of_group([](Json& group) { group.erase("ranks"); }),
              HasSubstr("'ranks' is missing"));
  Json json = good;
  json["otherData"]["ranks"][0].erase("groups");
  EXPECT_THAT(error_of_text(json.dump()), HasSubstr("in the ranks' entry 1, 'groups' is missing"));
  json["otherData"]["tessera_trace"] = 4;
  EXPECT_THAT(error_of_text(json.dump()), HasSubstr("'groups'"))
      << "an event refers to a group, and that version has none";
  const auto about = [&](const char* key, const Json& value) {
    Json json = good;
    event(json, "linear", 1)["args"][key] = value;
    return error_of_text(json.dump());
  };
  EXPECT_THAT(about("groups", Json::array({2})), HasSubstr("'groups' is not a whole number from 0"
                                                           " to 1"));
  EXPECT_THAT(about("groups", 0), HasSubstr("'groups' is not a list"));
  EXPECT_THAT(about("wire_bytes", -1), HasSubstr("'wire_bytes'"));
}

TEST_F(RunTraceTest, NamesTheDamagedEntryOfAList) {
  const auto action = [&](const char* key, const Json& value) {
    return error_of_event("forward 0", 1, [&](Json& event) { event["args"][key] = value; });
  };
  EXPECT_THAT(action("kind", "sideways"),
              HasSubstr("'kind' is 'sideways', expected one of forward, backward, input"));
  EXPECT_THAT(action("chunk", 0), HasSubstr("'chunk' is 0, which is none of rank 1's"));
  EXPECT_THAT(action("micro_batch", 1), HasSubstr("'micro_batch' is 1 of 1"));
  EXPECT_THAT(error_of_event("forward 0", 1, [](Json& event) { event["cat"] = "norm"; }),
              HasSubstr("'cat' is 'norm', expected action or message among a rank's schedule"));
  const auto message = [&](const char* key, const Json& value) {
    return error_of_event("wait receive activations 0", 1,
                          [&](Json& event) { event["args"][key] = value; });
  };
  EXPECT_THAT(message("call", "wave"), HasSubstr("'call' is 'wave', expected one of post send"));
  EXPECT_THAT(message("kind", "forward"), HasSubstr("expected one of activations, gradients"));
  EXPECT_THAT(message("bytes", "many"), HasSubstr("'bytes'"));
}

TEST_F(RunTraceTest, RefusesFlowsThatDoNotPairUp) {
  const auto without = [&](const char* phase) {
    return error([&](Json& json) {
      Json& events = json["traceEvents"];
      events.erase(std::ranges::find(events, Json(phase), [](Json& event) { return event["ph"]; }));
    });
  };
  EXPECT_THAT(without("f"), HasSubstr("in traceEvents, the flow '0x"));
  EXPECT_THAT(without("f"), HasSubstr("has no end"));
  EXPECT_THAT(without("s"), HasSubstr("has no begin"));
  EXPECT_THAT(
      error([](Json& json) { json["traceEvents"].push_back(events_of_phase(json, "s").front()); }),
      HasSubstr("begins twice"));
}

TEST_F(RunTraceTest, RefusesTimesThatDoNotAddUp) {
  const auto move = [&](const char* name, const char* key, double by) {
    return error_of_event(name, 0,
                          [&](Json& event) { event[key] = event[key].get<double>() + by; });
  };
  EXPECT_THAT(move("rms_norm", "ts", -1),
              HasSubstr("in the events of rank 0, 'rms_norm' at 0.002999000 s begins before what "
                        "comes before it has ended"));
  EXPECT_THAT(move("backward 0", "ts", -1), HasSubstr("'entry 4 of the list'"));
  EXPECT_THAT(move("next_batches", "ts", -0.001 - 1), HasSubstr("'ts'")) << "before zero";
  EXPECT_THAT(move("adamw", "dur", 1001), HasSubstr("events end after the step"));
  EXPECT_THAT(move("step 7", "dur", -2000), HasSubstr("events end after the step"));
}

TEST_F(RunTraceTest, ForeignTextIsMadeFitForATerminal) {
  Json json = written();
  event(json, "linear", 1)["name"] = "lin\x1b[2Jear";
  folder_.write("trace.json", json.dump());
  EXPECT_EQ(read_trace(path_).ranks[1].step.events[1].name, "lin?[2Jear");
}

}  // namespace
}  // namespace tessera
