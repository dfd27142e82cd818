#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "hardware/hardware_file.h"
#include "support/prepared_data.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Result = testing::ProgramResult;

/// Measurements of the emulated device, whose figures mean nothing.
class BenchDeviceTest : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result run(const std::vector<std::string>& arguments) {
    return testing::run_program(folder_, arguments);
  }
  Result bench(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--device", "emulated", "--threads", "2"});
    return run(arguments);
  }
  /// The first line of JSON that a command prints.
  static Json json_of(const Result& result) {
    EXPECT_EQ(result.status, 0) << result.output;
    return Json::parse(result.output.substr(result.output.find("{\"bench\"")));
  }

  TemporaryFolder folder_;
};

TEST_F(BenchDeviceTest, WritesAHardwareFileThatIsAboutTheDevice) {
  const Result result =
      bench({"all", "--m", "16,32", "--n", "16", "--k", "8", "--precision", "bf16", "--seconds",
             "0.05", "--sizes", "64KiB,256KiB", "--output", path("emulated.json")});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("emulated device with warps of 32 threads"),
                                   HasSubstr("the figures show that the measurement works")));
  const Hardware hardware = read_hardware(path("emulated.json"));
  ASSERT_TRUE(hardware.accelerator.has_value());
  EXPECT_EQ(hardware.accelerator->device, Device::emulated);
  EXPECT_EQ(hardware.accelerator->memory_bytes.origin, Origin::driver);
  EXPECT_FALSE(hardware.processor.name.empty());
  // Two squares, and the two products in three layouts.
  EXPECT_EQ(hardware.gemms.size(), 2 + 2 * kWordsOf<GemmLayout>.size());
  ASSERT_EQ(hardware.memory.size(), 2U);
  for (const MemoryRate& rate : hardware.memory) {
    EXPECT_EQ(rate.kernel, MemoryKernel::copy);
    EXPECT_GE(rate.best, rate.median);
  }
  EXPECT_GT(hardware.gemm_peak(DType::bf16), 0);
  EXPECT_EQ(hardware.memory_bandwidth(), hardware.memory[1].best);
}

TEST_F(BenchDeviceTest, AFileOfOneMachineIsRefusedOnAnother) {
  testing::prepare_small_data(folder_.path());
  folder_.write("config.toml", testing::small_config(folder_.path()));
  const std::string sheet = std::string(TESSERA_SOURCE) + "/configs/hardware/nvidia-h200.json";
  const auto train = [&](const char* device) {
    return run({"train", path("config.toml"), "--set", "run.hardware=\"" + sheet + "\"", "--set",
                std::string("run.device=\"") + device + "\""});
  };
  const Result emulated = train("emulated");
  EXPECT_EQ(emulated.status, 1);
  EXPECT_THAT(emulated.output,
              AllOf(HasSubstr("is about NVIDIA H200 SXM"), HasSubstr("this is emulated device")));
  const Result processor = train("cpu");
  EXPECT_EQ(processor.status, 1);
  EXPECT_THAT(processor.output, HasSubstr("this run computes on the processor"));
}

TEST_F(BenchDeviceTest, ProductsComeAsAHeatMap) {
  const Result result = bench({"gemm", "--m", "16,32", "--n", "16", "--k", "8", "--precision",
                               "fp32", "--seconds", "0.05", "--svg", path("gemm.svg")});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(testing::texts_of(read_file(path("gemm.svg"))), HasSubstr("emulated device"));
}

TEST_F(BenchDeviceTest, BlocksAreMeasured) {
  const Json mixture = json_of(
      bench({"moe", "--tokens", "16", "--hidden", "8", "--experts", "4", "--experts-per-token", "2",
             "--expert-size", "8", "--precision", "fp32", "--repeats", "3", "--json"}));
  EXPECT_EQ(mixture["device"], "emulated");
  EXPECT_EQ(mixture["forward_backward_seconds"].size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(mixture["forward_backward_seconds"][i], mixture["forward_seconds"][i]);
  }
  const Json attention = json_of(bench({"attention", "--tokens", "24", "--heads", "2", "--kv-heads",
                                        "1", "--head-size", "8", "--repeats", "2", "--json"}));
  EXPECT_EQ(attention["device"], "emulated");
  EXPECT_EQ(attention["forward_seconds"].size(), 2U);
}

TEST_F(BenchDeviceTest, ASkewedLoadIsSetBesideABalancedOne) {
  const std::vector<std::string> arguments{
      "moe", "--tokens",      "32", "--hidden",    "8",    "--experts", "8", "--experts-per-token",
      "2",   "--expert-size", "8",  "--precision", "fp32", "--repeats", "2", "--skew",
      "2.5"};
  std::vector<std::string> json_arguments = arguments;
  json_arguments.emplace_back("--json");
  const Json json = json_of(bench(json_arguments));
  EXPECT_EQ(json["device"], "emulated");
  EXPECT_EQ(json["skew"], 2.5);
  EXPECT_EQ(json["expert_load"], 2.5);  // 20 of 64 choices
  EXPECT_EQ(json["forward_backward_seconds"].size(), 2U);
  EXPECT_EQ(json["balanced_forward_backward_seconds"].size(), 2U);
  EXPECT_GT(json["time_over_balanced"], 0);
  EXPECT_THAT(bench(arguments).output,
              AllOf(HasSubstr("the fullest expert has 2.50 times the balanced load"),
                    HasSubstr("with a balanced load"), HasSubstr("times as long")));
  // The processor takes the same choices.
  std::vector<std::string> host = json_arguments;
  host.insert(host.begin(), "bench");
  EXPECT_EQ(json_of(run(host))["expert_load"], 2.5);
  std::vector<std::string> too_much = arguments;
  too_much.back() = "5";
  const Result refused = bench(too_much);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("1 to 4 times the balanced load"));
}

TEST_F(BenchDeviceTest, APrecisionThatTheDeviceLacksIsRefused) {
  for (const char* const what : {"moe", "attention", "gemm", "all"}) {
    const Result result = bench({what, "--precision", "fp64"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output,
                HasSubstr("--precision is \"fp64\", which the device \"emulated\" does not compute "
                          "in; choose bf16 or fp32, or --device cpu"))
        << what;
  }
}

TEST_F(BenchDeviceTest, WorkingSetsThatTheDeviceCannotHoldAreRefused) {
  const Result result = bench({"memory", "--sizes", "1MiB,100TiB"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("give sizes from 1 byte to half of the "));
}

TEST_F(BenchDeviceTest, EachOperationOfAStepIsSetBesideTheCopy) {
  folder_.write("config.toml", testing::small_config(folder_.path()));
  testing::write_known_peak(folder_ / "hardware.json", testing::two_threads());
  const std::vector<std::string> arguments{
      "bench",   "kernels", path("config.toml"), "--set", "model.vocabulary_size=32",
      "--steps", "2",       "--threads",         "2"};
  std::vector<std::string> device = arguments;
  device.insert(device.end(), {"--set", "run.device=\"emulated\"", "--set", "run.hardware=\"\""});
  const Result text = run(device);
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, AllOf(HasSubstr("of the copy"), HasSubstr("adamw"),
                                 HasSubstr("forward and backward"), HasSubstr("measured now"),
                                 HasSubstr("the figures show that the measurement works")));
  device.emplace_back("--json");
  const Json json = json_of(run(device));
  EXPECT_EQ(json["device"], "emulated");
  EXPECT_THAT(json["note"], HasSubstr("the device is emulated"));
  std::vector<std::string> segments;
  for (const Json& segment : json["segments"]) {
    segments.push_back(segment["segment"]);
    EXPECT_EQ(segment["seconds"].size(), 2U);
    EXPECT_GT(segment["seconds"][0], 0);
  }
  EXPECT_THAT(segments,
              ElementsAre("start", "forward", "backward", "update", "forward and backward"));
  EXPECT_EQ(json["segments"][4]["flops"],
            double{json["segments"][1]["flops"]} + double{json["segments"][2]["flops"]});
  for (const Json& operation : json["operations"]) {
    EXPECT_EQ(operation["seconds"].size(), 2U);
    EXPECT_GE(operation["runs"], 1);
    EXPECT_GE(operation["bytes"], 0);
  }
  const Json plan =
      Json::parse(run({"explain", path("config.toml"), "--set", "model.vocabulary_size=32", "--set",
                       "run.threads=2", "--set", "run.device=\"emulated\"", "--json"})
                      .output);
  EXPECT_EQ(json["parameters"], plan["totals"]["parameters"]);
  EXPECT_EQ(json["arena_bytes"], plan["totals"]["peak_bytes"]);
  const Result processor = run(arguments);
  EXPECT_EQ(processor.status, 1);
  EXPECT_THAT(processor.output, HasSubstr("set it to the device that is measured"));
}

TEST_F(BenchDeviceTest, StepsRunOnTheDevice) {
  folder_.write("config.toml", testing::small_config(folder_.path()));
  ASSERT_EQ(bench({"all", "--m", "16", "--n", "16", "--k", "8", "--precision", "bf16", "--seconds",
                   "0.05", "--sizes", "64KiB", "--output", path("emulated.json")})
                .status,
            0);
  const Json json =
      json_of(run({"bench", "step", path("config.toml"), "--set", "model.vocabulary_size=32",
                   "--set", "run.device=\"emulated\"", "--steps", "2", "--warmup", "1", "--threads",
                   "2", "--json", "--hardware", path("emulated.json")}));
  EXPECT_EQ(json["device"], "emulated");
  EXPECT_EQ(json["seconds"].size(), 2U);
  EXPECT_EQ(json["losses"].size(), 3U);
  EXPECT_GT(json["mfu_of_hardware_peak"], 0);
  EXPECT_EQ(json["hardware_peak"]["source"], "measured, in " + path("emulated.json"));
  EXPECT_GE(json["idle_share"], 0);
  EXPECT_EQ(json["tokens_from"], "random");
  testing::prepare_small_data(folder_.path());
  const Json of_text =
      json_of(run({"bench", "step", path("config.toml"), "--data", path("data"), "--set",
                   "run.device=\"emulated\"", "--steps", "1", "--warmup", "1", "--threads", "2",
                   "--json", "--hardware", path("emulated.json")}));
  EXPECT_EQ(of_text["tokens_from"], "data");
  EXPECT_GE(of_text["expert_load"], 1);
}

TEST_F(BenchDeviceTest, ExplainSaysWhatFitsADataSheet) {
  const std::string source(TESSERA_SOURCE);
  const auto explain = [&](const char* machine, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"explain",    source + "/configs/olmoe-1b-7b.toml",
                                       "--set",      "train.micro_batch=1",
                                       "--hardware", source + "/configs/hardware/" + machine};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Result h200 = explain("nvidia-h200.json");
  EXPECT_EQ(h200.status, 0) << h200.output;
  EXPECT_THAT(h200.output, AllOf(HasSubstr("on NVIDIA H200 SXM"), HasSubstr(": fits"),
                                 HasSubstr("computed from a data sheet")));
  EXPECT_THAT(explain("nvidia-h100.json").output, HasSubstr("does not fit"));
  const Result json = explain("nvidia-h200.json", {"--json"});
  const Json fit = Json::parse(json.output)["fit"];
  EXPECT_EQ(fit["source"], "data sheet");
  EXPECT_EQ(fit["memory_bytes"], 141000000000);
  const Result precise = explain("nvidia-h200.json", {"--set", "train.precision=\"fp64\""});
  EXPECT_EQ(precise.status, 1);
  EXPECT_THAT(precise.output, HasSubstr("the device \"cuda\" does not compute in; choose \"bf16\" "
                                        "or \"fp32\""));
  const Result contradiction = explain("nvidia-h200.json", {"--set", "run.device=\"emulated\""});
  EXPECT_EQ(contradiction.status, 1);
  EXPECT_THAT(contradiction.output, HasSubstr("run.device is \"emulated\""));
}

}  // namespace
}  // namespace tessera
