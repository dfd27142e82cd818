#include "train/step_results.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

StepResults some_results() {
  return {.cross_entropy = std::nan("7"),
          .balance = -0.0,
          .router_z = std::numeric_limits<double>::infinity(),
          .targets = -3,
          .tokens = int64_t{1} << 62,
          .expert_load = 1.5,
          .skipped = 0.25,
          .gradient_norm = 1e-300,
          .updated = true,
          .update_rms = 0.2,
          .orthogonality_error = {}};
}

TEST(StepResults, AreTheSameAfterTheyWereBits) {
  for (StepResults results : {StepResults(), some_results()}) {
    const StepResults read = step_results_of(bits_of(results));
    EXPECT_EQ(bits_of(read), bits_of(results));
    EXPECT_TRUE(read == results);
    EXPECT_EQ(read.skipped, results.skipped);
    EXPECT_EQ(read.update_rms, results.update_rms);
    EXPECT_EQ(read.orthogonality_error, results.orthogonality_error);
    EXPECT_EQ(read.updated, results.updated);
    EXPECT_EQ(read.tokens, results.tokens);
  }
  EXPECT_THROW(step_results_of(std::vector<uint64_t>(3)), InternalError);
}

TEST(StepResults, DifferInAnyMemberButMuonsMeasures) {
  StepResults other = some_results();
  other.update_rms = 7;
  EXPECT_TRUE(other == some_results());
  other.balance = 0.0;  // another bit
  EXPECT_FALSE(other == some_results());
  other = some_results();
  other.skipped.reset();
  EXPECT_FALSE(other == some_results());
  other = some_results();
  other.updated = false;
  EXPECT_FALSE(other == some_results());
}

}  // namespace
}  // namespace tessera
