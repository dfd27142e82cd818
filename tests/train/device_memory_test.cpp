#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/emulated_accelerator.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/prepared_data.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs on an emulated device with little memory.
class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemoryTest() { testing::prepare_small_data(folder_.path()); }

  RunConfig config(const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all{
        "run.device=\"emulated\"",  "run.hardware=\"\"",      "train.steps=2",
        "optimizer.warmup_steps=1", "model.family=\"olmoe\"", "model.layers=2",
        "model.hidden_size=32",     "model.experts=4",        "model.experts_per_token=2",
        "model.expert_size=16"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return parse_config(testing::small_config(folder_.path(), "run"), "test", all);
  }

  static TrainReport train_with(const RunConfig& config, int64_t memory_bytes) {
    TrainOptions options = testing::kQuiet;
    options.open_accelerator = [=](const RunConfig&, const LocalRank&) {
      return open_emulated(32, {}, memory_bytes);
    };
    return train(config, options, Logger());
  }

  TemporaryFolder folder_;
};

TEST_F(DeviceMemoryTest, ARunThatDoesNotFitIsRefusedBeforeItWritesAnything) {
  const int64_t needed = plan_step_that_fits(resolve(config())).memory.arena_bytes;
  const std::string error = error_of([&] { train_with(config(), needed + kDeviceReserve - 1); });
  EXPECT_THAT(error, AllOf(HasSubstr("the run needs "), HasSubstr("optimizer's states"),
                           HasSubstr("emulated device with warps of 32 threads has "),
                           HasSubstr(" free, 1.0 GiB of it for its libraries"),
                           HasSubstr("lower train.micro_batch (2)"),
                           HasSubstr("set train.recompute"), HasSubstr("lower data.context")));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  // What helps already is not proposed again.
  const RunConfig frugal = config({"train.micro_batch=1", "train.recompute=[\"layer\"]"});
  EXPECT_THAT(error_of([&] { train_with(frugal, 1000); }),
              AllOf(Not(HasSubstr("micro_batch")), Not(HasSubstr("set train.recompute"))));
}

TEST_F(DeviceMemoryTest, ARunWhoseStatesDoNotFitIsToldThatItsModelIsTooLarge) {
  const int64_t states = plan_step_that_fits(resolve(config())).memory.kept_bytes;
  const auto error = [&](int64_t bytes) {
    return error_of([&] { train_with(config(), bytes + kDeviceReserve); });
  };
  EXPECT_THAT(error(states - 1),
              AllOf(HasSubstr("only a smaller model or more memory helps"),
                    Not(HasSubstr("lower ")), Not(HasSubstr("set train.recompute"))));
  EXPECT_THAT(error(states), HasSubstr("lower train.micro_batch (2)"));
}

TEST_F(DeviceMemoryTest, ARunThatLeavesNothingToTheDevicesLibrariesIsRefused) {
  const int64_t needed = plan_step_that_fits(resolve(config())).memory.arena_bytes;
  EXPECT_THAT(error_of([&] { train_with(config(), needed); }), HasSubstr("the run needs "));
}

TEST_F(DeviceMemoryTest, ARunThatFitsExactlyBesideTheReserveIsTrained) {
  const int64_t needed = plan_step_that_fits(resolve(config())).memory.arena_bytes;
  EXPECT_EQ(train_with(config(), needed + kDeviceReserve).step, 2);
}

TEST_F(DeviceMemoryTest, ARunWhoseOperationsTheDeviceLacksIsRefusedBeforeItWritesAnything) {
  // There is memory enough, but no library of products.
  const RunConfig hip = config({"run.device=\"hip\""});
  EXPECT_THAT(error_of([&] { train_with(hip, int64_t{1} << 40); }),
              HasSubstr("no matrix products on the device \"hip\""));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

}  // namespace
}  // namespace tessera
