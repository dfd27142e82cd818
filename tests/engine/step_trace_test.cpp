#include "engine/step_trace.h"

#include <functional>
#include <limits>

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

/// The sample's file with something changed.
class StepTraceTest : public ::testing::Test {
 protected:
  std::string error(const std::function<void(Json&)>& damage) const {
    write_trace(folder_ / "trace.json", testing::sample_trace());
    Json json = Json::parse(read_file(folder_ / "trace.json"));
    damage(json);
    return error_of_text(json.dump());
  }
  std::string error_of_text(const std::string& text) const {
    folder_.write("trace.json", text);
    return error_of([&] { read_trace(folder_ / "trace.json"); });
  }

  TemporaryFolder folder_;
};

TEST_F(StepTraceTest, ComesBackAsItWasWritten) {
  const StepTrace written = testing::sample_trace();
  write_trace(folder_ / "trace.json", written);
  StepTrace read = read_trace(folder_ / "trace.json");
  // Times go through microseconds, which may move the last bit.
  const auto near = [](double& actual, double expected) {
    EXPECT_NEAR(actual, expected, 1e-12);
    actual = expected;
  };
  near(read.start, written.start);
  near(read.duration, written.duration);
  ASSERT_EQ(read.events.size(), written.events.size());
  for (size_t i = 0; i < read.events.size(); ++i) {
    near(read.events[i].start, written.events[i].start);
    near(read.events[i].duration, written.events[i].duration);
  }
  EXPECT_EQ(read, written);
}

TEST_F(StepTraceTest, SaysWhichDeviceItIsOf) {
  StepTrace written = testing::sample_trace();
  written.origin.device = Device::cuda;
  written.origin.accelerator = "NVIDIA H200";
  write_trace(folder_ / "trace.json", written);
  EXPECT_EQ(read_trace(folder_ / "trace.json").origin, written.origin);
  Json json = Json::parse(read_file(folder_ / "trace.json"));
  json["otherData"]["device"] = "tpu";
  EXPECT_THAT(error_of_text(json.dump()), HasSubstr("'device' is 'tpu', expected one of cpu"));
  json["otherData"]["device"] = "hip";
  json["otherData"].erase("accelerator");
  EXPECT_THAT(error_of_text(json.dump()), HasSubstr("'accelerator' is missing"));
  // Versions that did not know devices wrote neither.
  json["otherData"].erase("device");
  folder_.write("trace.json", json.dump());
  EXPECT_EQ(read_trace(folder_ / "trace.json").origin, testing::sample_trace().origin);
}

TEST_F(StepTraceTest, RanksAreProcessesAndLanesThreads) {
  StepTrace written = testing::sample_trace();
  written.origin.rank = 3;
  // What the network does may overlap with what computes.
  written.events[2].lane = Lane::network;
  written.events[2].start = written.events[1].start;
  write_trace(folder_ / "trace.json", written);
  const Json json = Json::parse(read_file(folder_ / "trace.json"));
  for (const Json& event : json["traceEvents"]) EXPECT_EQ(event["pid"], 3);
  EXPECT_EQ(json["traceEvents"][2]["tid"], 0);
  EXPECT_EQ(json["traceEvents"][3]["tid"], 1);
  const StepTrace read = read_trace(folder_ / "trace.json");
  EXPECT_EQ(read.origin.rank, 3);
  EXPECT_EQ(read.events[2].lane, Lane::network);
  EXPECT_EQ(read.events[3].lane, Lane::compute);
  // On one lane it may not.
  written.events[2].lane = Lane::compute;
  write_trace(folder_ / "trace.json", written);
  EXPECT_THAT(error_of([&] { read_trace(folder_ / "trace.json"); }), HasSubstr("begins before"));
}

TEST_F(StepTraceTest, IsTheFormatThatViewersOpen) {
  write_trace(folder_ / "trace.json", testing::sample_trace());
  const Json json = Json::parse(read_file(folder_ / "trace.json"));
  ASSERT_EQ(json["traceEvents"].size(), 8U);
  for (const Json& event : json["traceEvents"]) {
    EXPECT_EQ(event["ph"], "X");
    for (const char* key : {"ts", "dur", "pid", "tid"}) EXPECT_TRUE(event[key].is_number()) << key;
    for (const char* key : {"name", "cat"}) EXPECT_TRUE(event[key].is_string()) << key;
  }
  EXPECT_NEAR(json["traceEvents"][0]["dur"].get<double>(), 10000, 1e-6);  // microseconds
  EXPECT_EQ(json["otherData"]["products"].size(), 3U) << "each distinct product once";
}

TEST_F(StepTraceTest, RefusesWhatIsNoTrace) {
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
              HasSubstr("found a trace of version 1, expected 2"));
  EXPECT_THAT(error_of_text(R"({"otherData": {"tessera_trace": 2, "tessera_trace": 2}})"),
              HasSubstr("twice"));
  std::string deep(100, '[');
  EXPECT_THAT(error_of_text(deep), HasSubstr("nested deeper"));
}

TEST_F(StepTraceTest, RefusesNoStepAndSeveral) {
  EXPECT_THAT(error([](Json& json) { json["traceEvents"].erase(0); }),
              HasSubstr("no event of a whole step"));
  EXPECT_THAT(
      error([](Json& json) { json["traceEvents"].push_back(Json(json["traceEvents"][0])); }),
      HasSubstr("more than one step"));
}

TEST_F(StepTraceTest, NamesTheDamagedPlace) {
  const auto other = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["otherData"][key] = value; });
  };
  EXPECT_THAT(other("threads", 0), HasSubstr("in otherData, 'threads' is not a whole number"));
  EXPECT_THAT(other("threads", 1.5), HasSubstr("'threads'"));
  EXPECT_THAT(other("threads", uint64_t{1} << 63), HasSubstr("'threads'"));
  EXPECT_THAT(other("gemm_peak", -1), HasSubstr("'gemm_peak'"));
  EXPECT_THAT(other("gemm_peak", nullptr), HasSubstr("'gemm_peak'"));
  EXPECT_THAT(other("precision", 16), HasSubstr("'precision' is not a text"));
  EXPECT_THAT(other("precision", "fp16"),
              AllOf(HasSubstr("trace.json is damaged"),
                    HasSubstr("'precision' is 'fp16', expected bf16, fp32 or fp64")));
  EXPECT_THAT(other("features", "avx2"), HasSubstr("'features' is not a list"));
  EXPECT_THAT(other("features", {"avx2", 512}), HasSubstr("'features' holds what is no text"));
  EXPECT_THAT(other("products", "none"), HasSubstr("'products' is not a list"));
  const auto product = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["otherData"]["products"][1][key] = value; });
  };
  EXPECT_THAT(product("m", 0), HasSubstr("in product 1, 'm'"));
  EXPECT_THAT(product("k", int64_t{1} << 41), HasSubstr("'k'"));
  EXPECT_THAT(product("lda", 1), HasSubstr("'lda'"));
  EXPECT_THAT(product("input", "i32"), HasSubstr("'input' is 'i32', expected f32, bf16 or f64"));
  EXPECT_THAT(product("output", "f64"), HasSubstr("no product of"));
  EXPECT_THAT(product("accumulate", 1), HasSubstr("neither true nor false"));
}

TEST_F(StepTraceTest, NamesTheDamagedEvent) {
  const auto event = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["traceEvents"][2][key] = value; });
  };
  EXPECT_THAT(event("ph", "B"), AllOf(HasSubstr("is damaged: in event 3"), HasSubstr("'ph'")));
  EXPECT_THAT(event("dur", "long"), HasSubstr("'dur'"));
  EXPECT_THAT(event("dur", -1), HasSubstr("'dur'"));
  EXPECT_THAT(event("ts", 1e300), HasSubstr("'ts'"));
  EXPECT_THAT(event("args", 3), HasSubstr("not an object"));
  EXPECT_THAT(error([](Json& json) { json["traceEvents"][2].erase("cat"); }),
              HasSubstr("'cat' is missing"));
  EXPECT_THAT(error([](Json& json) { json["traceEvents"][2] = 5; }), HasSubstr("not an object"));
  const auto about = [&](const char* key, const Json& value) {
    return error([&](Json& json) { json["traceEvents"][2]["args"][key] = value; });
  };
  EXPECT_THAT(about("flops", -2), HasSubstr("'flops'"));
  EXPECT_THAT(about("backward_flops", "all"), HasSubstr("'backward_flops'"));
  EXPECT_THAT(about("layer", -2), HasSubstr("'layer'"));
  EXPECT_THAT(about("products", Json::parse("[[3, 1]]")), HasSubstr("whole number from 0 to 2"));
  EXPECT_THAT(about("products", Json::parse("[[0, 0]]")), HasSubstr("whole number from 1"));
  EXPECT_THAT(about("products", Json::parse("[[0]]")), HasSubstr("no [product, runs]"));
}

TEST_F(StepTraceTest, RefusesTimesThatDoNotAddUp) {
  const auto move = [&](size_t event, const char* key, double by) {
    return error([&](Json& json) {
      Json& time = json["traceEvents"][event][key];
      time = time.get<double>() + by;
    });
  };
  EXPECT_THAT(move(3, "ts", -1), HasSubstr("begins before what comes before it has ended"));
  EXPECT_THAT(move(1, "ts", -1), HasSubstr("begins before"));
  EXPECT_THAT(move(7, "dur", 1001), HasSubstr("events end after the step"));
  EXPECT_THAT(move(0, "dur", -2000), HasSubstr("events end after the step"));
}

TEST_F(StepTraceTest, ForeignTextIsMadeFitForATerminal) {
  write_trace(folder_ / "trace.json", testing::sample_trace());
  Json json = Json::parse(read_file(folder_ / "trace.json"));
  json["traceEvents"][2]["name"] = "lin\x1b[2Jear";
  folder_.write("trace.json", json.dump());
  EXPECT_EQ(read_trace(folder_ / "trace.json").events[1].name, "lin?[2Jear");
}

}  // namespace
}  // namespace tessera
