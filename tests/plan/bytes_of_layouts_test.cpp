#include <algorithm>

#include <gtest/gtest.h>

#include "model/chunk.h"
#include "plan/programs.h"

namespace tessera {
namespace {

constexpr int64_t kSequences = 8;
constexpr int64_t kContext = 16;

ModelConfig model() {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 32;
  config.heads = 8;
  config.kv_heads = 8;
  config.feed_forward_size = 64;
  config.vocabulary_size = 64;
  return config;
}

StepPrograms programs_on(const MeshSizes& sizes) {
  const ProgramSize size{.sequences = kSequences, .context = kContext};
  return step_programs(write_training(model(), DType::bf16, size, {}, {Mesh(sizes), 0}), {});
}

/// The bytes that a rank sends over exactly these axes, in the nodes that `counts` picks.
template <typename Counts>
double bytes_sent(const Program& program, std::span<const Axis> axes, Counts&& counts) {
  double bytes = 0;
  for (const Node& node : program.nodes()) {
    if (!counts(node)) continue;
    const std::vector<Spec> inputs = program.specs(node.inputs);
    const std::vector<Spec> outputs = program.specs(node.outputs);
    for (const WireBytes& wire : node.operation->cost(inputs, outputs).wire) {
      if (std::ranges::equal(wire.axes, axes)) bytes += wire.bytes;
    }
  }
  return bytes;
}

/// MegaScale-MoE, equation 1: 2 b s h (n-1) / n elements for the attention of a layer, which are an
/// all-gather and a reduce-scatter. It is as many in the backward pass, and in a feed-forward
/// block.
TEST(BytesOfLayouts, TensorParallelismSendsWhatEquationOneSays) {
  for (const int n : {2, 4, 8}) {
    const StepPrograms programs = programs_on({.tensor = n});
    const Program& program = programs.chunks.front().program;
    const Axis axes[] = {program.mesh().tensor()};
    const double elements = 2.0 * kSequences * kContext * model().hidden_size * (n - 1) / n;
    for (const Block block : {Block::attention, Block::feed_forward}) {
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        const auto counts = [&](const Node& node) {
          return node.layer == 1 && node.block == block && node.phase == phase;
        };
        EXPECT_DOUBLE_EQ(bytes_sent(program, axes, counts), 2 * elements)
            << word(block) << " " << word(phase) << " over " << n;
      }
    }
  }
}

/// 2 (n-1) / n of the gradients, in f32, once a step: nothing for each micro-batch.
TEST(BytesOfLayouts, DataParallelismSendsTheGradientsOnceAStep) {
  for (const int n : {2, 4, 8}) {
    const StepPrograms programs = programs_on({.data = {n}});
    const Program& chunk = programs.chunks.front().program;
    const Axis axes[] = {chunk.mesh().data()[0]};
    EXPECT_EQ(bytes_sent(chunk, axes, [](const Node&) { return true; }), 0);
    double elements = 0;
    for (const ParameterUnit& unit : programs.chunks.front().parameters.units()) {
      elements += static_cast<double>(unit.elements);
    }
    const Program& update = programs.update.program;
    double sent = 0;
    const auto of_gradients = [&](const Node& node) {
      return !node.inputs.empty() &&
             update.info(update.base(node.inputs[0])).kind == ValueKind::main_gradient;
    };
    // Norms and matrices are summed over all axes on which ranks use them on their own data.
    const Axis whole[] = {chunk.mesh().tensor(), chunk.mesh().context(), axes[0]};
    const Axis split[] = {chunk.mesh().context(), axes[0]};
    for (const std::span<const Axis> over : {std::span<const Axis>(axes), {whole}, {split}}) {
      sent += bytes_sent(update, over, of_gradients);
    }
    EXPECT_DOUBLE_EQ(sent, 4 * elements * 2 * (n - 1) / n);
  }
}

}  // namespace
}  // namespace tessera
