#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/emulated_accelerator.h"
#include "support/names_in.h"
#include "train/rank_runs.h"

namespace tessera {

/// Runs of several ranks, each on an emulated device of its own.
class DeviceRanks : public Ranks {
 protected:
  static void SetUpTestSuite() {
    Ranks::SetUpTestSuite();
    testing::write_known_peak(folder("emulated.json"), testing::two_threads(),
                              open_emulated().get());
  }

  static std::vector<std::string> on_device(std::vector<std::string> more) {
    more.insert(more.end(), {"run.device=\"emulated\"", "train.precision=\"fp32\"",
                             "run.hardware=\"" + folder("emulated.json").string() + "\"",
                             "train.steps=4", "checkpoint.every=2", "train.global_batch=8"});
    return more;
  }
  static std::string files(const std::string& run, int64_t step) {
    std::string all;
    for (const std::string& name : testing::names_in(checkpoint(run, step))) {
      if (name.ends_with(".safetensors")) all += name + read_file(checkpoint(run, step) / name);
    }
    return all;
  }
  static void expect_same_curve(const std::string& run, const std::string& expected, double bound) {
    const auto left = metrics(run), right = metrics(expected);
    ASSERT_EQ(left.size(), right.size());
    ASSERT_FALSE(right.empty());
    for (size_t i = 0; i < right.size(); ++i) {
      EXPECT_NEAR(left[i].loss, right[i].loss, bound * right[i].loss) << "step " << i + 1;
      EXPECT_NEAR(left[i].grad_norm, right[i].grad_norm, 10 * bound * right[i].grad_norm);
    }
  }
};

}  // namespace tessera
