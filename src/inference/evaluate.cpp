#include "inference/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "engine/memory_plan.h"
#include "plan/programs.h"
#include "tensor/memory_pool.h"

namespace tessera {

Evaluator::Evaluator(const ModelConfig& config, DType compute, std::span<const Tensor> weights,
                     int64_t rows, int64_t context, bool document_mask, Runtime& runtime)
    : training_(
          write_evaluation(inference_config(config), compute, {rows, context, document_mask})),
      executor_(training_.program, runtime),
      frame_(training_.program),
      inputs_(training_, runtime.pool(), frame_),
      rows_(rows),
      vocabulary_size_(config.vocabulary_size) {
  for (size_t i = 0; i < weights.size(); ++i) {
    frame_.bind(training_.parameters.values()[i], weights[i]);
  }
}

std::vector<double> Evaluator::row_losses(const Batch& batch) {
  inputs_.fill(batch);
  executor_.forward(frame_);
  std::vector<double> losses;
  for (int64_t row = 0; row < batch.rows; ++row) {
    losses.push_back(
        sum(frame_[training_.token_loss].slice(row * batch.context, (row + 1) * batch.context)));
  }
  frame_.release();
  return losses;
}

Evaluation Evaluator::run(Loader& loader, int64_t instances) {
  Evaluation result;
  result.instances = instances > 0 ? std::min(instances, loader.instances()) : loader.instances();
  double total = 0;
  for (int64_t done = 0; done < result.instances; done += rows_) {
    Batch batch = loader.next();
    // The last batch may reach beyond what is asked for: those rows count nothing.
    const int64_t rows = std::min(rows_, result.instances - done);
    std::fill(batch.targets.begin() + rows * batch.context, batch.targets.end(), -1);
    inputs_.fill(batch);
    executor_.forward(frame_);
    total += sum(frame_[training_.token_loss]);
    result.targets += std::ranges::count_if(batch.targets, [](int32_t t) { return t >= 0; });
  }
  frame_.release();
  result.loss = total / static_cast<double>(std::max<int64_t>(result.targets, 1));
  result.perplexity = std::exp(result.loss);
  return result;
}

void require_evaluation_memory(const ModelConfig& config, DType compute, const ProgramSize& size,
                               Runtime& runtime) {
  const auto require_room = [&](int64_t needed, const char* least) {
    if (needed <= physical_memory()) return;
    throw Error(
        "{} sequences of {} tokens at once take {}{}, and the machine has {}; lower --batch",
        size.sequences, size.context, least, format_bytes(needed), format_bytes(physical_memory()));
  };
  const Program program = write_evaluation(inference_config(config), compute, size).program;
  int64_t inputs = 0;
  int64_t largest = 0;
  for (const ValueInfo& value : program.values()) {
    if (value.kind == ValueKind::input) inputs += value.spec.bytes();
    if (value.kind == ValueKind::computed) largest = std::max(largest, value.spec.bytes());
  }
  const int64_t before = runtime.pool().in_use() + inputs;
  // The library of products does not answer for sizes far beyond any machine.
  require_room(before + largest, "at least ");
  require_room(before + plan_memory(program, runtime.target()).peak_bytes, "");
}

std::vector<SourceEvaluation> evaluate_sources(Evaluator& evaluator, const TrainingData& data,
                                               int64_t rows, int64_t instances) {
  std::vector<SourceEvaluation> results;
  for (const DataSource& source : data.sources) {
    const bool alone = data.sources.size() == 1;  // then the loader says what to do
    if (!alone && source.instances->instances(Split::held_out) == 0) continue;
    Loader loader(
        {data.tokenizer, {source}},
        {.split = Split::held_out, .rows = rows, .vocabulary_size = evaluator.vocabulary_size()});
    results.push_back({source.name, source.weight, evaluator.run(loader, instances)});
  }
  if (results.empty()) {
    throw Error(
        "no source has held-out data; prepare one again with a held-out fraction above 0, or set "
        "held_out of its [[data.sources]]");
  }
  return results;
}

int64_t evaluation_rows(const TrainingData& data, int64_t rows, int64_t instances) {
  int64_t most = 1;  // of a source
  for (const DataSource& source : data.sources) {
    most = std::max(most, source.instances->instances(Split::held_out));
  }
  if (instances > 0) most = std::min(most, instances);
  return std::min(rows, most);
}

Evaluation mean_evaluation(std::span<const SourceEvaluation> sources) {
  TESSERA_CHECK(!sources.empty(), "the mean of no evaluation");
  if (sources.size() == 1) return sources.front().evaluation;
  Evaluation mean;
  double weights = 0;
  for (const auto& [name, weight, evaluation] : sources) {
    mean.loss += weight * evaluation.loss;
    weights += weight;
    mean.targets += evaluation.targets;
    mean.instances += evaluation.instances;
  }
  mean.loss /= weights;
  mean.perplexity = std::exp(mean.loss);
  return mean;
}

}  // namespace tessera
