#include "train/step_results.h"

#include <cmath>
#include <limits>
#include <vector>

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

TEST(StepResults, HaveBitsOfEachMember) {
  using Change = void (*)(StepResults&);
  const std::vector<Change> common{
      [](StepResults& results) { results.cross_entropy = 1; },
      [](StepResults& results) { results.balance = 0.0; },  // another bit
      [](StepResults& results) { results.router_z = 1; },
      [](StepResults& results) { results.targets = 1; },
      [](StepResults& results) { results.tokens = 1; },
      [](StepResults& results) { results.expert_load = 1; },
      [](StepResults& results) { results.skipped = 1; },
      [](StepResults& results) { results.skipped.reset(); },
      [](StepResults& results) { results.gradient_norm = 1; },
      [](StepResults& results) { results.updated = false; },
  };
  const std::vector<Change> measures{
      [](StepResults& results) { results.update_rms = 1; },
      [](StepResults& results) { results.update_rms.reset(); },
      [](StepResults& results) { results.orthogonality_error = 1; },
  };
  for (const auto* changes : {&common, &measures}) {
    for (const Change change : *changes) {
      StepResults changed = some_results();
      change(changed);
      EXPECT_NE(bits_of(changed), bits_of(some_results()));
      EXPECT_EQ(bits_of(step_results_of(bits_of(changed))), bits_of(changed));
      EXPECT_EQ(changed == some_results(), changes == &measures);
    }
  }
}

}  // namespace
}  // namespace tessera
