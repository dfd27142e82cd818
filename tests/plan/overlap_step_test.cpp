#include "plan/overlap_step.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "plan/small_run.h"

namespace tessera {
namespace {

/// The head computes its products for the backward pass in the forward pass: three times the
/// product of tokens and the head. 1024 tokens of 1024 numbers take longer to multiply than to
/// read.
TEST(NominalSeconds, CountEachProductOfTheHeadOnce) {
  const RunConfig config = testing::small_run(1, {"model.hidden_size=1024", "data.context=1024",
                                                  "model.vocabulary_size=4096"});
  const StepPrograms programs = step_programs(config, {mesh_of(config, 1), 0});
  const Program& program = programs.chunks().front().program;
  const auto head = std::ranges::find_if(program.nodes(), [&](const Node& node) {
    return node_cost(program, node).backward_flops > 0;
  });
  ASSERT_NE(head, program.nodes().end());
  const double products = 3 * 2.0 * 1024 * 1024 * 4096;
  EXPECT_DOUBLE_EQ(nominal_seconds(program, *head), products / 400e12);
}

}  // namespace
}  // namespace tessera
