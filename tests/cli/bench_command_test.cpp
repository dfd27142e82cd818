#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/program.h"
#include "hardware/gemm_sweep.h"
#include "hardware/hardware_file.h"
#include "pipeline/run_trace.h"
#include "support/prepared_data.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;
using Result = testing::ProgramResult;

/// Small sizes in a precision that every build has.
const std::vector<std::string> kSmallMixture{
    "moe", "--tokens",      "16", "--hidden",    "8",    "--experts", "4", "--experts-per-token",
    "2",   "--expert-size", "8",  "--precision", "fp64", "--threads", "2"};

class BenchCommandTest : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result bench(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    return testing::run_program(folder_, std::move(arguments));
  }
  /// The JSON objects that the command prints, a line each; progress stands on lines of its own.
  std::vector<Json> reports(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Result result = bench(std::move(arguments));
    EXPECT_EQ(result.status, 0) << result.output;
    std::vector<Json> objects;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("{")) objects.push_back(Json::parse(line));
    }
    return objects;
  }
  static void expect_common(const Json& json, size_t repeats, const char* seconds) {
    EXPECT_EQ(json[seconds].size(), repeats);
    EXPECT_GT(json["flops"], 0);
    EXPECT_GT(json["arena_bytes"], 0);
    EXPECT_GT(json["peak_memory_bytes"], json["arena_bytes"]);
    EXPECT_GT(json["gemm_peak"], 0);
    EXPECT_EQ(json["precision"], "fp64");
    EXPECT_EQ(json["processor"]["threads"], 2);
    EXPECT_TRUE(json["processor"]["features"].is_array());
    EXPECT_FALSE(json["processor"]["name"].get<std::string>().empty());
  }

  TemporaryFolder folder_;
};

TEST_F(BenchCommandTest, MoeReportsBothPasses) {
  std::vector<std::string> arguments = kSmallMixture;
  arguments.insert(arguments.end(), {"--repeats", "3", "--warmup", "1"});
  const auto json = reports(arguments);
  ASSERT_EQ(json.size(), 1U);
  expect_common(json[0], 3, "forward_seconds");
  expect_common(json[0], 3, "forward_backward_seconds");
  EXPECT_EQ(json[0]["bench"], "moe");
  EXPECT_EQ(json[0]["sizes"]["experts_per_token"], 2);
  EXPECT_EQ(json[0]["parameters"], 4 * 8 + 4 * 3 * 8 * 8);  // router and experts
  const Result text = bench(arguments);
  EXPECT_THAT(text.output, HasSubstr("forward and backward"));
  EXPECT_THAT(text.output, HasSubstr("4 experts of 8, 2 a token"));
}

TEST_F(BenchCommandTest, AttentionReportsEachLength) {
  const auto json =
      reports({"attention", "--tokens", "24,8", "--heads", "2", "--kv-heads", "1", "--head-size",
               "4", "--documents", "2", "--precision", "fp64", "--threads", "2", "--repeats", "2"});
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["sizes"]["tokens"], 8);
  EXPECT_EQ(json[1]["sizes"]["tokens"], 24);
  for (const Json& one : json) expect_common(one, 2, "forward_backward_seconds");
}

TEST_F(BenchCommandTest, StepNeedsNoData) {
  testing::write_known_peak(folder_ / "hardware.json", testing::two_threads());
  folder_.write("config.toml", testing::small_config(folder_.path()));
  const std::vector<std::string> arguments{
      "step", path("config.toml"), "--set", "train.precision=\"fp64\"", "--steps", "2", "--warmup",
      "1",    "--threads",         "2"};
  std::vector<std::string> with_size = arguments;
  with_size.insert(with_size.end(), {"--set", "model.vocabulary_size=32"});
  const auto json = reports(with_size);
  ASSERT_EQ(json.size(), 1U);
  expect_common(json[0], 2, "seconds");
  EXPECT_EQ(json[0]["tokens"], 128);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  const Result without = bench(arguments);
  EXPECT_EQ(without.status, 1);
  EXPECT_THAT(without.output, HasSubstr("model.vocabulary_size"));
}

TEST_F(BenchCommandTest, ProductsAreTunedOnADeviceThatHasAlgorithmsToChooseFrom) {
  folder_.write("config.toml", testing::small_config(folder_.path()));
  for (const char* const device : {"cpu", "emulated"}) {
    const Result result =
        bench({"products", path("config.toml"), "--set", "model.vocabulary_size=32", "--set",
               fmt::format("run.device=\"{}\"", device), "--output", path("products.json")});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, AllOf(HasSubstr(fmt::format("the device {}", device)),
                                     Not(HasSubstr("run.tuned_products"))));
    EXPECT_FALSE(fs::exists(path("products.json")));
  }
}

/// The end of standard input, which is empty here, ends the turns.
TEST_F(BenchCommandTest, TurnsWaitForStandardInput) {
  std::vector<std::string> arguments = kSmallMixture;
  arguments.emplace_back("--turns");
  const Result result = bench(arguments);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("turn\n"));
  EXPECT_THAT(result.output, HasSubstr("the first turn never came"));
}

TEST_F(BenchCommandTest, ALineOfInputIsATurn) {
  // Both lines are there before the first is asked for, and the third turn never comes.
  testing::Subprocess process({"/bin/sh", "-c",
                               fmt::format("printf 'a\\nb\\n' | {} bench {} --turns --json",
                                           TESSERA_PROGRAM, join(kSmallMixture, " "))},
                              folder_ / "output.txt");
  ASSERT_EQ(process.wait(), 0) << process.output();
  EXPECT_THAT(process.output(), StartsWith("turn\nturn\nturn\n{"));
  const Json json = Json::parse(process.output().substr(process.output().find('{')));
  EXPECT_EQ(json["forward_backward_seconds"].size(), 2U);
}

/// The end of a pipe to which nothing is written.
TEST_F(BenchCommandTest, ASignalEndsTheWaitForATurn) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int writer = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  testing::Subprocess process({"/bin/sh", "-c",
                               fmt::format("exec {} bench {} --turns <{}", TESSERA_PROGRAM,
                                           join(kSmallMixture, " "), pipe)},
                              folder_ / "output.txt");
  while (process.running() && process.output().find("turn\n") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 1);
  EXPECT_THAT(process.output(), HasSubstr("interrupted: nothing was reported"));
  ::close(writer);
}

TEST_F(BenchCommandTest, BlocksComeAsPictures) {
  const auto draw = [&](std::vector<std::string> arguments, const char* file) {
    arguments.insert(arguments.end(), {"--repeats", "2", "--svg", path(file)});
    const Result result = bench(std::move(arguments));
    ASSERT_EQ(result.status, 0) << result.output;
    EXPECT_EQ(testing::parse_xml(read_file(folder_ / file))[0].name, "svg");
  };
  draw(kSmallMixture, "moe.svg");
  draw({"attention", "--tokens", "16,32", "--heads", "2", "--kv-heads", "1", "--head-size", "8",
        "--precision", "fp64"},
       "attention.svg");
}

/// With the options that make it small, and what `train` does with its file.
TEST_F(BenchCommandTest, AllIsReadBack) {
  const Result result =
      bench({"all", "--precision", "fp64", "--m", "8,16", "--n", "24", "--k", "32", "--sizes",
             "64KiB,1MiB", "--seconds", "0", "--threads", "2", "--output", path("machine.json")});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("f64, K = 32"));
  EXPECT_THAT(result.output, HasSubstr("1.0 MiB"));
  EXPECT_THAT(result.output, HasSubstr("machine.json holds all of it"));
  const Hardware hardware = read_hardware(folder_ / "machine.json");
  require_same_processor(hardware, 2, "machine.json");
  EXPECT_GT(hardware.gemm_peak(DType::f64), 0);
  EXPECT_GT(hardware.memory_bandwidth(), 0);
  const GemmSweep asked{
      .m = {8, 16},
      .n = {24},
      .k = {32},
      .layouts = {GemmLayout::forward, GemmLayout::input_gradient, GemmLayout::weight_gradient},
      .dtypes = {DType::f64}};
  EXPECT_EQ(std::ranges::count_if(hardware.gemms,
                                  [&](const GemmRate& rate) { return asks_for(asked, rate); }),
            6);
  EXPECT_EQ(hardware.memory.size(), 8U);  // two sizes of four loops
}

TEST_F(BenchCommandTest, CeilingsComeAsTextJsonAndPictures) {
  const Result gemm = bench({"gemm", "--m", "8,16", "--n", "8", "--k", "8", "--precision", "fp64",
                             "--seconds", "0", "--svg", path("gemm.svg"), "--json"});
  ASSERT_EQ(gemm.status, 0) << gemm.output;
  EXPECT_EQ(testing::parse_xml(read_file(folder_ / "gemm.svg"))[0].name, "svg");
  const Hardware products =
      parse_hardware(gemm.output.substr(gemm.output.find("{\n")), "standard output");
  EXPECT_GE(products.gemms.size(), 3U);
  EXPECT_GT(products.gemm_peak(DType::f64), 0);

  const Result memory =
      bench({"memory", "--sizes", "64KiB,1MiB", "--seconds", "0", "--svg", path("memory.svg")});
  ASSERT_EQ(memory.status, 0) << memory.output;
  EXPECT_EQ(testing::parse_xml(read_file(folder_ / "memory.svg"))[0].name, "svg");
  EXPECT_THAT(memory.output, HasSubstr("1.0 MiB"));
  EXPECT_THAT(memory.output, HasSubstr("triad  update"));
}

TEST_F(BenchCommandTest, ErrorsSayWhatWasFoundAndWhatToDo) {
  const auto expect_error = [&](std::vector<std::string> arguments, const char* message) {
    const Result result = bench(std::move(arguments));
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr(message));
  };
  expect_error({}, "subcommand is required");
  expect_error({"moe", "--experts", "4", "--experts-per-token", "5"}, "5 experts a token");
  expect_error({"moe", "--precision", "int8"}, "--precision");
  expect_error({"moe", "--repeats", "0"}, "--repeats");
  expect_error({"moe", "--experts", "16777216", "--precision", "fp64"}, "lower --tokens");
  expect_error({"attention", "--tokens", "64,16777216", "--heads", "65536", "--kv-heads", "65536",
                "--precision", "fp64"},
               "lower --tokens, --heads or --head-size");
  expect_error({"gemm", "--m", "8,1048576", "--n", "1048576", "--precision", "fp64"}, "lower --m");
  expect_error({"attention", "--heads", "3", "--kv-heads", "2"}, "not a multiple of 2");
  expect_error({"attention", "--tokens", "0"}, "--tokens");
  expect_error({"gemm", "--m", "-1"}, "--m");
  expect_error({"gemm", "--layout", "sideways"}, "--layout");
  expect_error({"gemm", "--svg", "picture.png"}, "pictures are SVG");
  for (const char* name : {"gemm", "memory", "moe", "attention"}) {
    expect_error({name, "--svg", path("absent/picture.svg")}, "absent/picture.svg");
  }
  expect_error({"all", "--output", path("absent/machine.json")}, "absent/machine.json");
  expect_error({"all", "--output", folder_.path().string()}, "it is a folder");
  expect_error({"memory", "--sizes", "much"}, "much");
  expect_error({"memory", "--sizes", "1000TB"}, "give sizes from 1 byte to half");
  expect_error({"step", path("absent.toml")}, "absent.toml");
}

TEST_F(BenchCommandTest, CollectivesOfThreadsAreReportedDrawnAndKept) {
  testing::write_known_peak(folder_ / "hardware.json");
  const auto run = [&] {
    return bench({"collectives", "--ranks", "2,3", "--sizes", "1KiB,64KiB", "--collectives",
                  "all_reduce,broadcast", "--seconds", "0", "--json", "--svg", path("c.svg"),
                  "--hardware", path("hardware.json")});
  };
  const Result result = run();
  ASSERT_EQ(result.status, 0) << result.output;
  const Json rates = Json::parse(result.output);
  ASSERT_EQ(rates.size(), 8U);
  EXPECT_EQ(rates[0].at("collective"), "all_reduce");
  EXPECT_EQ(rates[0].at("carrier"), "threads");
  EXPECT_EQ(rates[0].at("ranks"), 2);
  EXPECT_EQ(rates[0].at("bytes"), 1024);
  EXPECT_EQ(rates[7].at("ranks"), 3);
  EXPECT_THAT(testing::texts_of(read_file(folder_ / "c.svg")), HasSubstr("GB/s (bus)"));
  EXPECT_EQ(read_hardware(folder_ / "hardware.json").collectives.size(), 8U);
  EXPECT_EQ(run().status, 0);  // in place of those before
  EXPECT_EQ(read_hardware(folder_ / "hardware.json").collectives.size(), 8U);
  const Result missing = bench({"collectives", "--hardware", path("none.json")});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.output, HasSubstr("none.json"));
  EXPECT_NE(bench({"collectives", "--ranks", "1"}).status, 0);
  EXPECT_NE(bench({"collectives", "--sizes", "large"}).status, 0);
}

/// The collectives are those of processors. Rates of an accelerator's file are not.
TEST_F(BenchCommandTest, CollectivesAreNotKeptInAFileAboutAnAccelerator) {
  const std::string sheet =
      read_file(fs::path(TESSERA_SOURCE) / "configs/hardware/nvidia-h100.json");
  write_file(path("h100.json"), sheet);
  const Result result = bench({"collectives", "--sizes", "1KiB", "--seconds", "0", "--hardware",
                               path("h100.json"), "--svg", path("c.svg")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("h100.json is about NVIDIA H100 SXM"),
                                   HasSubstr("name a file that `tessera bench all --device cpu`"),
                                   Not(HasSubstr("all_reduce"))));
  EXPECT_EQ(read_file(path("h100.json")), sheet);
  EXPECT_FALSE(fs::exists(path("c.svg")));
}

class BenchScheduleTest : public BenchCommandTest {
 protected:
  BenchScheduleTest() {
    write_file(folder_ / "pipeline.toml",
               "[model]\nfamily = 'llama'\nlayers = 4\nhidden_size = 16\nheads = 2\nkv_heads = 2\n"
               "feed_forward_size = 16\nvocabulary_size = 32\n[data]\ncontext = 8\n"
               "[train]\nmicro_batch = 1\nglobal_batch = 4\nsteps = 20\n"
               "[parallel]\npipeline = 2\nschedule = 'zb-h1'\n");
  }
  Result bench_schedule(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"schedule", path("pipeline.toml"), "--ranks", "2",
                                         "--repeats", "2", "--seconds", "0.001"});
    return bench(std::move(arguments));
  }
};

TEST_F(BenchScheduleTest, ReportsAndDrawsATimedRun) {
  const Result text = bench_schedule({"--svg", path("run.svg")});
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr("zb-h1: 2 stages, 2 chunks, 4 micro-batches on 2 ranks"));
  const std::string picture = read_file(folder_ / "run.svg");
  EXPECT_FALSE(testing::parse_xml(picture).empty());
  EXPECT_THAT(picture, HasSubstr("zb-h1: 2 ranks, 4 micro-batches, bubble"));
}

TEST_F(BenchScheduleTest, TracesTheLastRun) {
  const Result result = bench_schedule({"--trace", path("trace.json")});
  EXPECT_EQ(result.status, 0) << result.output;
  const RunTrace trace = read_trace(path("trace.json"));
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.schedule.name, "zb-h1");
  EXPECT_EQ(trace.ranks[0].step.number, 3) << "after a run to warm up";
  const Result nowhere = bench_schedule({"--trace", path("none/trace.json")});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.output, AllOf(HasSubstr("none/trace.json"), Not(HasSubstr("run 1 of"))));
}

TEST_F(BenchScheduleTest, NamesWhatIsWrong) {
  EXPECT_THAT(bench_schedule({"--times", path("none.json")}).output, HasSubstr("none.json"));
  EXPECT_THAT(bench_schedule({"--times", "hardware"}).output,
              HasSubstr("--seconds is for --times equal and flops"));
  EXPECT_THAT(bench_schedule({"--set", "parallel.tensor=2"}).output,
              AllOf(HasSubstr("parallel.tensor"), HasSubstr("--ranks")));
  EXPECT_NE(bench_schedule({"--svg", path("run.png")}).status, 0);
  EXPECT_NE(bench_schedule({"--seconds", "0"}).status, 0);
}

}  // namespace
}  // namespace tessera
