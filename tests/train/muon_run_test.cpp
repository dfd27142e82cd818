// Whole runs with Muon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MuonRuns : public Ranks {
 protected:
  static RunConfig with_muon(const std::string& run, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"optimizer.name=\"muon\"", "train.precision=\"bf16\""});
    return config(run, more);
  }
};

TEST_F(MuonRuns, GoOnBitForBit) {
  const auto long_run = [](const std::string& run, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train.steps=60", "checkpoint.every=30"});
    return with_muon(run, more);
  };
  train_on(1, long_run("whole"));
  train_on(1, long_run("parts", {"train.stop_after=30"}));
  train_on(1, long_run("parts"), {.resume = true});
  EXPECT_TRUE(tensors("whole", 60) == tensors("parts", 60));
  const auto whole = metrics("whole"), parts = metrics("parts");
  ASSERT_EQ(whole.size(), 60U);
  ASSERT_EQ(parts.size(), 60U);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].loss, parts[i].loss);
    EXPECT_EQ(whole[i].orthogonality_error, parts[i].orthogonality_error);
    // 0.2 times the root of the mean of the squared singular values.
    EXPECT_NEAR(whole[i].update_rms.value_or(0), 0.2, 0.06);
    EXPECT_LT(whole[i].orthogonality_error.value_or(9), 0.8);
  }
  EXPECT_LT(whole[59].loss, 0.8 * whole[0].loss);
}

/// Blocks are the matrices: on another number of ranks they would be others, without a word.
TEST_F(MuonRuns, OfBlocksGoOnWithAsManyRanksToAMatrixAlone) {
  const auto split = [](const std::string& run, const std::string& way, int ranks,
                        std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"train.steps=2", "optimizer.warmup_steps=1", "checkpoint.every=1",
                 "optimizer.muon_split=\"" + way + "\"", fmt::format("parallel.tensor={}", ranks)});
    return with_muon(run, more);
  };
  train_on(2, split("blocks", "blocks", 2, {"train.stop_after=1"}));
  EXPECT_THAT(error_of([&] { train_on(4, split("blocks", "blocks", 4), {.resume = true}); }),
              AllOf(HasSubstr("saved with parallel.tensor = 2"), HasSubstr("says 4")));
  EXPECT_NO_THROW(train_on(4, split("blocks", "blocks", 2), {.resume = true}));
  train_on(2, split("gather", "gather", 2, {"train.stop_after=1"}));
  EXPECT_NO_THROW(train_on(4, split("gather", "gather", 4), {.resume = true}));
}

}  // namespace
}  // namespace tessera
