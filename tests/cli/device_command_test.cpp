#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(DeviceCommand, SaysWhatTheDeviceIs) {
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    return testing::run_program(folder, arguments);
  };
  const auto text = run({"device", "--device", "emulated"});
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr("warps of 32"));
  const auto result = run({"device", "--device", "emulated", "--json"});
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["accelerator"]["device"], "emulated");
  EXPECT_GT(json["free_bytes"], 0);
  EXPECT_TRUE(json["libraries"].empty());
  const auto processor = run({"device", "--device", "cpu"});
  EXPECT_EQ(processor.status, 1);
  EXPECT_THAT(processor.output, HasSubstr("name an accelerator"));
}

}  // namespace
}  // namespace tessera
