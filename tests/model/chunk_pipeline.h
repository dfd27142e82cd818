#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "engine/executor.h"
#include "model/chunk.h"
#include "model/small_configs.h"
#include "ops/host_target.h"
#include "tensor/dispatch.h"

namespace tessera::testing {

inline constexpr int kMicroBatches = 4;
inline constexpr ProgramSize kSize{.sequences = 2, .context = 6, .document_mask = true};

/// The chunks of a model on one rank: what a pipeline's ranks would send one another is copied.
class Pipeline {
 public:
  Pipeline(const ModelConfig& config, DType dtype, const std::vector<ChunkRange>& ranges,
           const Recompute& recompute, std::vector<Action> actions)
      : chunks_(chunks_of(config, dtype, ranges, recompute)),
        actions_(std::move(actions)),
        runtime_(host_target(2)),
        executor_(programs(), actions_, runtime_) {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const auto number = static_cast<int>(c);
      for (const Value seed : {chunks_[c].target_seed, chunks_[c].token_seed}) {
        const Tensor& tensor = executor_.tensor(seed, number);
        dispatch_wide(tensor.dtype(), [&](auto type) {
          *tensor.data<decltype(type)>() = static_cast<decltype(type)>(0.125);
        });
      }
      const ParameterList& parameters = chunks_[c].outline.parameters;
      for (size_t i = 0; i < parameters.specs().size(); ++i) {
        const ParameterSpec& spec = parameters.specs()[i];
        const Tensor wide(spec.shape, accumulation_dtype(spec.dtype));
        initialize(spec, 1, TensorPiece(spec.shape), wide, 1);
        convert(wide, executor_.tensor(parameters.values()[i], number));
      }
    }
  }

  void run() {
    for (const Action& action : actions_) {
      const Chunk& chunk = chunks_[static_cast<size_t>(action.program)];
      const bool forward = action.segment == Segment::forward || action.segment == Segment::whole;
      if (forward) write_tokens(chunk, action);
      receive(chunk.boundary_in, action, forward);
      receive(chunk.boundary_out_gradients, action, !forward);
      executor_.run(action);
      const bool boundary_gradients =
          action.segment == Segment::backward || action.segment == Segment::input_gradients;
      if (forward) send(chunk.boundary_out, action, action.program + 1);
      if (boundary_gradients) send(chunk.boundary_in_gradients, action, action.program - 1);
    }
  }

  /// The main gradients of all parameters, by name.
  std::map<std::string, std::vector<double>> gradients() const {
    std::map<std::string, std::vector<double>> result;
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const ParameterList& parameters = chunks_[c].outline.parameters;
      for (size_t i = 0; i < parameters.specs().size(); ++i) {
        const Value main = chunks_[c].program.main_gradient(parameters.values()[i]);
        if (main) result[parameters.specs()[i].name] = numbers(main, static_cast<int>(c));
      }
    }
    return result;
  }

  /// The sums of the losses and of the experts' tokens, by name.
  std::map<std::string, std::vector<double>> sums() const {
    std::map<std::string, std::vector<double>> result;
    for (size_t c = 0; c < chunks_.size(); ++c) {
      for (const StepSum& sum : chunks_[c].outline.sums.all()) {
        result[sum.name] = numbers(chunks_[c].program.find(sum.name), static_cast<int>(c));
      }
    }
    return result;
  }

  const MemoryPlan& plan() const { return executor_.plan(); }

 private:
  static std::vector<Chunk> chunks_of(const ModelConfig& config, DType dtype,
                                      const std::vector<ChunkRange>& ranges,
                                      const Recompute& recompute) {
    std::vector<Chunk> result;
    for (const ChunkRange& range : ranges) {
      result.push_back(write_chunk(config, dtype, kSize, recompute, range));
    }
    return result;
  }

  std::vector<const Program*> programs() const {
    std::vector<const Program*> result;
    for (const Chunk& chunk : chunks_) result.push_back(&chunk.program);
    return result;
  }

  std::vector<double> numbers(Value value, int chunk) const {
    const Tensor& tensor = executor_.tensor(value, chunk);
    const Tensor wide(tensor.shape(), DType::f64);
    convert(tensor, wide);
    return {wide.values<double>().begin(), wide.values<double>().end()};
  }

  void write_tokens(const Chunk& chunk, const Action& action) const {
    const CounterRandom random(3, fmt::format("tokens {}", action.micro_batch));
    const auto fill = [&](Value value, const auto& number) {
      if (!value) return;
      const auto values =
          executor_.tensor(value, action.program, action.micro_batch).values<int32_t>();
      for (size_t t = 0; t < values.size(); ++t) {
        values[t] = number(static_cast<int64_t>(t), static_cast<int64_t>(t) % kSize.context);
      }
    };
    const auto token = [&](int64_t t) {
      return static_cast<int32_t>(random.bits(static_cast<uint64_t>(t)) % kVocabulary);
    };
    fill(chunk.batch.tokens, [&](int64_t t, int64_t) { return token(t); });
    fill(chunk.batch.targets, [&](int64_t t, int64_t position) {
      return position + 1 == kSize.context ? -1 : token(t + 1);
    });
    fill(chunk.batch.positions,
         [](int64_t, int64_t position) { return static_cast<int32_t>(position); });
    fill(*chunk.batch.document_starts,
         [](int64_t, int64_t position) { return position >= 2 ? 2 : 0; });
  }

  /// Copies what was sent for these inputs, where this is the action that first uses them.
  void receive(const Boundary& inputs, const Action& action, bool due) {
    if (!due || !inputs.stream) return;
    const auto expected = executor_.inputs(action.segment, action.program);
    for (const Value input : inputs.values()) {
      if (std::ranges::find(expected, input) == expected.end()) continue;
      const std::string& name =
          chunks_[static_cast<size_t>(action.program)].program.info(input).name;
      executor_.tensor(input, action.program, action.micro_batch)
          .copy_from(sent_.at({action.program, action.micro_batch, name}));
    }
  }

  void send(const Boundary& outputs, const Action& action, int to) {
    if (!outputs.stream) return;
    const std::string name = to > action.program ? "boundary_in" : "of_boundary_out";
    for (const auto& [value, part] :
         {std::pair(outputs.stream, ".stream"), std::pair(outputs.output, ".output"),
          std::pair(outputs.router, ".router"),
          std::pair(outputs.probability_sums, ".probability_sums"),
          std::pair(outputs.counts, ".counts")}) {
      if (!value) continue;  // the model does not have it
      const Tensor& tensor = executor_.tensor(value, action.program, action.micro_batch);
      const Tensor copy(tensor.shape(), tensor.dtype());
      copy.copy_from(tensor);
      sent_.insert_or_assign({to, action.micro_batch, name + part}, copy);
    }
  }

  std::vector<Chunk> chunks_;
  std::vector<Action> actions_;
  Runtime runtime_;
  Executor executor_;
  std::map<std::tuple<int, int, std::string>, Tensor> sent_;  // by chunk, micro-batch and input
};

/// The model in two, cut behind its first layer.
inline std::vector<ChunkRange> two_chunks(const ModelConfig& config) {
  return {{.layers = {0, 1}, .embedding = true, .head = false},
          {.layers = {1, config.layers}, .embedding = false, .head = true}};
}

/// Each micro-batch forward and backward before the next.
inline std::vector<Action> whole_schedule() {
  std::vector<Action> actions;
  for (int m = 0; m < kMicroBatches; ++m) {
    actions.push_back({Segment::forward, 0, m});
    actions.push_back({Segment::backward, 0, m});
  }
  return actions;
}

}  // namespace tessera::testing
