#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "hardware/processor.h"
#include "support/sample_trace.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Result = testing::ProgramResult;

class TraceCommandTest : public ::testing::Test {
 protected:
  void SetUp() override { write(testing::sample_run_of(testing::sample_trace())); }
  void write(const RunTrace& run) { write_trace(folder_ / "trace.json", run); }
  Result summarize(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"trace", "summarize", folder_.path().string()});
    return testing::run_program(folder_, std::move(arguments));
  }

  Result draw(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"trace", "draw", folder_.path().string()});
    return testing::run_program(folder_, std::move(arguments));
  }

  TemporaryFolder folder_;
};

TEST_F(TraceCommandTest, SaysWhereTheTimeWent) {
  const Result result = summarize({"--memory-bandwidth", "100"});
  ASSERT_EQ(result.status, 0) << result.output;
  for (const char* part :
       {"GEMM 1000 GFLOP/s (the run's)", "memory 100 GB/s (--memory-bandwidth)",
        "operations with matrix products", "idle", "100.0 %", "rms_norm", "--measure times"}) {
    EXPECT_THAT(result.output, HasSubstr(part));
  }
}

TEST_F(TraceCommandTest, TheCeilingOfTheUserComesFirst) {
  const Result result = summarize({"--gemm-peak", "500", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json["gemm_ceiling"]["per_second"], 5e11);
  EXPECT_EQ(json["gemm_ceiling"]["source"], "--gemm-peak");
  EXPECT_TRUE(json["memory_ceiling"].is_null());
}

TEST_F(TraceCommandTest, MeasuresTheProductsOnTheirProcessor) {
  RankTrace trace = testing::sample_trace();
  const Processor processor = this_processor(1);
  trace.step.origin.processor = processor.name;
  trace.step.origin.features = processor.features;
  trace.step.origin.threads = 1;
  const GemmShape product{.m = 32, .n = 32, .k = 32, .lda = 32, .ldb = 32, .ldc = 32};
  for (TraceEvent& event : trace.step.events) {
    if (!event.products.empty()) event.products = {{trace.step.index_of(product), 3}};
  }
  write(testing::sample_run_of(trace));
  const Result result = summarize({"--measure", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const Json json = Json::parse(result.output);
  ASSERT_EQ(json["products"].size(), 1U);
  const double each = json["products"][0]["alone_seconds_each"];
  EXPECT_GT(each, 0);
  EXPECT_NEAR(json["alone_seconds"].get<double>(), 12 * each, 1e-6 * each);
}

TEST_F(TraceCommandTest, OfSeveralRanksComparesThemAndListsOne) {
  EXPECT_THAT(summarize({}).output,
              AllOf(Not(HasSubstr("bubble")), Not(HasSubstr("critical path"))));
  write(testing::sample_run());
  const Result first = summarize({});
  ASSERT_EQ(first.status, 0) << first.output;
  EXPECT_THAT(first.output, AllOf(HasSubstr("step 7 on rank 0"),
                                  HasSubstr("schedule: 1f1b, micro-batches: 1; measured bubble: "
                                            "112.5 %"),
                                  HasSubstr("axes      calls  MB sent  ms"),
                                  HasSubstr("critical path: 9.60 ms; changes of ranks: 0")));
  const Result second = summarize({"--rank", "1", "--json"});
  ASSERT_EQ(second.status, 0) << second.output;
  const Json json = Json::parse(second.output);
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["run"]["schedule"], "1f1b");
  ASSERT_EQ(json["run"]["ranks"].size(), 2U);
  EXPECT_NEAR(json["run"]["ranks"][1]["busy_seconds"].get<double>(), 0.003, 1e-9);
  EXPECT_EQ(json["run"]["network"]["ranks"][1]["axes"][0]["axes"], "pipeline");
  EXPECT_GT(json["run"]["critical_path"]["seconds"], 0);
  const Result third = summarize({"--rank", "2"});
  EXPECT_EQ(third.status, 1);
  EXPECT_THAT(third.output, HasSubstr("the trace has no rank 2, expected one from 0 to 1"));
}

TEST_F(TraceCommandTest, DrawsTheStep) {
  write(testing::sample_run());
  const std::string picture = (folder_ / "step.svg").string();
  const Result all = draw({"--svg", picture});
  ASSERT_EQ(all.status, 0) << all.output;
  EXPECT_EQ(all.output, "");
  const std::string svg = read_file(picture);
  EXPECT_FALSE(testing::parse_xml(svg).empty());
  EXPECT_THAT(svg, AllOf(HasSubstr("rank 0: stage 0"), HasSubstr("rank 1: stage 1"),
                         HasSubstr("step 7: ")));
  const Result some = draw({"--svg", picture, "--ranks", "1", "--from", "0.001", "--to", "0.02"});
  ASSERT_EQ(some.status, 0) << some.output;
  EXPECT_THAT(read_file(picture), Not(HasSubstr("rank 0")));
  const Result before = testing::run_program(
      folder_, {"trace", "draw", "--svg", picture, "--ranks", "1,0", folder_.path().string()});
  ASSERT_EQ(before.status, 0) << before.output;
  const std::string both = read_file(picture);
  EXPECT_LT(both.find("rank 1"), both.find("rank 0"));
}

TEST_F(TraceCommandTest, SaysWhyItCannotDraw) {
  const std::string picture = (folder_ / "step.svg").string();
  const auto expect_error = [&](std::vector<std::string> arguments, const char* error) {
    const Result result = draw(std::move(arguments));
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr(error));
  };
  expect_error({"--svg", picture, "--ranks", "0,3"}, "--ranks names rank 3");
  expect_error({"--svg", picture, "--from", "0.002", "--to", "0.001"}, "a smaller --from");
  expect_error({"--svg", (folder_ / "none" / "step.svg").string()}, "none/step.svg");
  expect_error({"--svg", (folder_ / "step.png").string()}, "name a file that ends in .svg");
  EXPECT_FALSE(fs::exists(picture));
  EXPECT_NE(draw({}).status, 0) << "--svg is needed";
}

TEST_F(TraceCommandTest, ErrorsSayWhatWasFoundAndWhatToDo) {
  const Result elsewhere = summarize({"--measure"});
  EXPECT_EQ(elsewhere.status, 1);
  EXPECT_THAT(elsewhere.output, HasSubstr("trace comes from a processor of 1 TFLOP/s, 2 thread"));
  EXPECT_NE(summarize({"--gemm-peak", "-3"}).status, 0);
  folder_.write("trace.json", "{\"traceEvents\": []}");
  const Result foreign = summarize({});
  EXPECT_EQ(foreign.status, 1);
  EXPECT_THAT(foreign.output, HasSubstr("`tessera train` with run.trace_step and `tessera bench "
                                        "schedule --trace` write a new one"));
  fs::remove(folder_ / "trace.json");
  EXPECT_THAT(summarize({}).output, HasSubstr("trace.json"));
}

}  // namespace
}  // namespace tessera
