#include "train/bench_kernels.h"

#include <map>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load_config.h"
#include "config/resolve.h"
#include "engine/count_flops.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// The small mixture of experts, without data, on the emulated device.
RunConfig on_device(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.end(),
                   {"model.vocabulary_size=64", "run.device=emulated", "run.hardware=\"\"",
                    "run.threads=1", "model.balance_form=layer"});
  return resolve(parse_config(testing::small_config("/nowhere"), "test", overrides));
}

/// A step has two micro-batches, and one is measured, whatever the schedule is.
TEST(BenchKernels, MeasureTheOperationsOfAllChunks) {
  const RunConfig config = on_device({"parallel.virtual_stages=2", "parallel.schedule=dualpipe-v"});
  const StepPlan plan = plan_step(config, run_target(config));
  std::map<std::string, int64_t> nodes;  // of the start, both chunks and the update
  double flops = 0;                      // of both passes
  const auto add = [&](const Program& program) {
    for (const Node& node : program.nodes()) {
      if (node.operation->view(0)) continue;  // nothing runs
      ++nodes[std::string(node.operation->name())];
    }
  };
  ASSERT_EQ(plan.programs.chunks().size(), 2U);
  for (const Chunk& chunk : plan.programs.chunks()) {
    add(chunk.program);
    flops += count_flops(chunk.program).useful();
  }
  add(plan.programs.start);
  add(plan.programs.update.program);

  const KernelsReport report = measure_kernels(config, {.warmup = 0, .measured = 2, .before = {}});
  std::map<std::string, int64_t> measured;
  double of_operations = 0;  // seconds of the second step
  for (const KernelMeasurement& operation : report.operations) {
    measured[operation.operation] = operation.nodes;
    ASSERT_EQ(operation.seconds.size(), 2U);
    of_operations += operation.seconds[1];
  }
  EXPECT_EQ(measured, nodes);
  EXPECT_EQ(report.tokens, 2 * 32);
  ASSERT_EQ(report.segments.size(), 5U);
  EXPECT_EQ(report.segments[4].segment, "forward and backward");
  EXPECT_EQ(report.segments[4].flops, flops);
  double of_parts = 0;  // the last one is the sum of two others
  for (const SegmentMeasurement& segment : std::span(report.segments).first(4)) {
    ASSERT_EQ(segment.seconds.size(), 2U);
    EXPECT_GT(segment.seconds[1], 0);
    of_parts += segment.seconds[1];
  }
  EXPECT_LE(of_operations, of_parts * (1 + 1e-9)) << "operations of a part that did not count";
}

TEST(BenchKernels, RefuseSeveralRanks) {
  EXPECT_THAT(error_of([] { measure_kernels(on_device({"parallel.pipeline=2"}), {}); }),
              HasSubstr("parallel.pipeline (2): this command runs one rank; set it to 1"));
}

}  // namespace
}  // namespace tessera
