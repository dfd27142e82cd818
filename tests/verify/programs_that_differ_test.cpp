// Ranks whose programs would make different calls: they find it before the first step.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_batches.h"
#include "support/tiny_mixture.h"
#include "verify/changed_programs.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using testing::all_nodes;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Returns the error of a run of two data-parallel ranks, in which a function changes the update of
/// rank 1.
std::string error_of_run(const std::function<void(std::vector<Node>& update)>& change) {
  LayoutTrial trial{.model = testing::tiny_mixture(2), .mesh = Mesh({.data = {2}})};
  trial.size = {.sequences = 2, .context = 8};
  trial.compute = DType::f32;
  trial.change = [&](StepPrograms& programs) {
    if (programs.mesh_rank().rank == 1) change(all_nodes(programs.update.program));
  };
  const TrialBatches batches{
      .whole = testing::random_batches(trial.size, trial.model.vocabulary_size, 1, 1, 3),
      .parts = {}};
  try {
    run_layout(trial, batches);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Returns the indices of the update's sums of gradients over the ranks, which do not depend on
/// each other.
std::vector<size_t> sums(const std::vector<Node>& update) {
  std::vector<size_t> found;
  for (size_t i = 0; i < update.size(); ++i) {
    if (update[i].operation->lane() != Lane::compute &&
        !update[i].operation->updated_inputs().empty()) {
      found.push_back(i);
    }
  }
  return found;
}

TEST(ProgramsThatDiffer, AreNoneToBeginWith) {
  EXPECT_EQ(error_of_run([](auto&) {}), "no error");
}

TEST(ProgramsThatDiffer, InTheOrderOfTheirCallsAreFoundBeforeTheFirstStep) {
  const std::string error = error_of_run([](auto& update) {
    const std::vector<size_t> found = sums(update);
    ASSERT_GE(found.size(), 2U);
    std::swap(update[found[0]], update[found[1]]);
  });
  EXPECT_THAT(error, AllOf(HasSubstr("the programs of ranks 0, 1 would not make the same calls"),
                           HasSubstr("rank 0 would make call "), HasSubstr("rank 1 would make ")));
}

}  // namespace
}  // namespace tessera
