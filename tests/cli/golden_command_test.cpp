#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "hardware/hardware_file.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

/// Files that an earlier program wrote (see the tests of their rooms).
const fs::path kGolden = fs::path(TESSERA_SOURCE) / "tests/fixtures/golden";

TEST(GoldenFiles, TheTraceIsSummarizedWithTheHardwareFile) {
  const TemporaryFolder folder;
  const auto result =
      testing::run_program(folder, {"trace", "summarize", (kGolden / "trace.json").string(),
                                    "--hardware", (kGolden / "hardware.json").string(), "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json["gemm_ceiling"]["per_second"], 27484081003.082527);
  EXPECT_EQ(json["memory_ceiling"]["per_second"], 208666217535.59708);
  EXPECT_EQ(json["products"].size(), 10U);
}

/// `train` takes the peak, once the file is of the machine that it runs on.
TEST(GoldenFiles, TrainingTakesThePeakFromTheHardwareFile) {
  const TemporaryFolder folder;
  Hardware hardware = read_hardware(kGolden / "hardware.json");
  hardware.processor = this_processor(2);
  testing::prepare_small_data(folder.path());
  folder.write("measured.json", hardware_json(hardware));
  folder.write("config.toml", testing::small_config(folder.path()));
  const auto result =
      testing::run_program(folder, {"train", (folder / "config.toml").string(), "--set",
                                    "run.hardware=\"" + (folder / "measured.json").string() + "\"",
                                    "--set", "train.steps=2", "--set", "optimizer.warmup_steps=1",
                                    "--set", "train.precision=\"fp32\""});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ::testing::HasSubstr("peak 41.3 GFLOP/s (fp32, 2 threads)"));
}

}  // namespace
}  // namespace tessera
