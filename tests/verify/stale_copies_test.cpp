#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "support/random_batches.h"
#include "support/run_program.h"
#include "support/tiny_mixture.h"
#include "train/training_step.h"
#include "verify/changed_programs.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class StaleCopies : public ::testing::TestWithParam<WireFormat> {
 protected:
  StaleCopies() {
    trial_.model = testing::tiny_mixture(2);
    trial_.model.experts = trial_.model.experts_per_token = trial_.model.expert_size = 0;
    trial_.model.feed_forward_size = 8;
    trial_.size = {.sequences = 2, .context = 8};
    trial_.compute = GetParam() == WireFormat::int8 ? DType::bf16 : DType::f32;
    trial_.shard.axes = {.weights = 2, .gradients = 2, .optimizer = 2, .secondary = 2};
    trial_.shard.unit_options.secondary_wire = {GetParam(), 64};
  }

  /// What two steps on emulated devices leave on rank 0.
  struct Trained {
    std::vector<double> norms;                   ///< of the gradients, by step
    std::vector<std::vector<std::byte>> states;  ///< kept(), by step
    /// If the last norm is not finite, what the search for the first such value finds.
    std::string found;
  };

  /// The bytes of the weights, masters and moments that a rank keeps.
  static std::vector<std::byte> kept(const ParameterStore& store) {
    std::vector<std::byte> bytes;
    for (const KeptTensor* tensor :
         store.tensors({Kept::weight, Kept::master, Kept::first_moment, Kept::second_moment})) {
      const Tensor host = on_host(tensor->memory);
      const auto* const memory = static_cast<const std::byte*>(host.address());
      bytes.insert(bytes.end(), memory, memory + host.bytes());
    }
    return bytes;
  }

  Trained train() const {
    const auto batches =
        testing::random_batches(trial_.size, trial_.model.vocabulary_size, 2, 1, 3);
    World world(trial_.mesh.ranks(), std::chrono::minutes(1));
    Trained trained;
    run_mesh(world, trial_.mesh, [&](RankGroups& groups) {
      Runtime runtime = testing::make_runtime(host_target(1), testing::Emulation{.lanes = 32});
      groups.use_devices(*runtime.accelerator(), std::chrono::minutes(1));
      const StepPrograms programs = layout_programs(trial_, groups.rank());
      Executor executor(programs.list(), programs.actions(), runtime);
      ParameterStore store = store_of(programs, executor);
      TrainingStep step(programs, executor, store);
      runtime.join(groups);
      store.initialize(trial_.seed, 1);
      for (size_t i = 0; i < batches.size(); ++i) {
        step.forward_backward(batches[i]);
        step.update(trial_.optimizer, {.step = static_cast<int64_t>(i) + 1, .steps = 2});
        const double norm = step.results().wait().gradient_norm;
        if (groups.rank() != 0) continue;
        trained.norms.push_back(norm);
        executor.synchronize();
        trained.states.push_back(kept(store));
      }
      const std::string text = step.find_non_finite(batches.back());
      if (groups.rank() == 0) trained.found = text;
    });
    return trained;
  }

  LayoutTrial trial_{.model = {}, .mesh = Mesh({.data = {2}})};
};

TEST_P(StaleCopies, AreNotThereToBeginWith) {
  const auto [norms, states, found] = train();
  EXPECT_THAT(norms, ::testing::Each(::testing::Gt(0)));
  EXPECT_TRUE(states[0] != states[1]) << "a step changed nothing";
  EXPECT_THAT(found, HasSubstr("every value is finite"));
}

/// In the second step the copies of the second layer have the version that they had at first.
TEST_P(StaleCopies, AreNamedOnDevices) {
  trial_.change = [](StepPrograms& programs) {
    for (Node* gather : testing::nodes_of(programs.chunks()[0].program, "gather_units")) {
      if (gather->layer != 1) continue;
      testing::run_by({gather}, [runs = std::make_shared<int>(0)](const Operation& operation,
                                                                  const Execution& execution) {
        operation.run(execution);
        const Tensor& version = execution.inputs.back();
        if (++*runs > 1) execution.stream->fill_zero(version.address(), version.bytes());
      });
    }
  };
  const auto [norms, states, found] = train();
  ASSERT_EQ(norms.size(), 2U);
  EXPECT_GT(norms[0], 0);
  EXPECT_TRUE(std::isnan(norms[1]));
  EXPECT_TRUE(states[0] == states[1]) << "the step with stale copies changed weights or moments";
  EXPECT_THAT(found, HasSubstr("whole:layers.1/"));
  EXPECT_THAT(found, HasSubstr("/again is not finite at element 0 (made by gather_copies in the "
                               "recompute pass)"));
}

INSTANTIATE_TEST_SUITE_P(Formats, StaleCopies,
                         ::testing::Values(WireFormat::fp32, WireFormat::bf16, WireFormat::int8),
                         [](const auto& info) { return std::string(word(info.param)); });

}  // namespace
}  // namespace tessera
