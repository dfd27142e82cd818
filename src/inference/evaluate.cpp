// An Evaluator fills the program's inputs, runs it and sums the losses of the tokens. The program
// gathers these losses from all ranks, so every rank has the same sums.

#include "inference/evaluate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/usable_memory.h"
#include "config/mesh_of.h"
#include "engine/memory_plan.h"

namespace tessera {
namespace {

constexpr Action kEvaluate{.segment = Segment::whole};  // of the executor's only program

}  // namespace

Evaluator::Evaluator(const EvaluationProgram& program, Executor& executor, int program_index)
    : program_(program),
      executor_(executor),
      program_index_(program_index),
      inputs_(program.batch, program.parameters) {}

Tensor Evaluator::token_losses(const Batch& batch) {
  inputs_.fill(executor_, program_index_, 0, batch);
  executor_.run({.segment = Segment::whole, .program = program_index_});
  return on_host(executor_.tensor(program_.token_loss, program_index_));
}

std::vector<double> Evaluator::row_losses(const Batch& batch) {
  const Tensor token_loss = token_losses(batch);
  std::vector<double> losses;
  for (int64_t row = 0; row < batch.rows; ++row) {
    losses.push_back(sum(token_loss.slice(row * batch.context, (row + 1) * batch.context)));
  }
  return losses;
}

LoaderOptions Evaluator::loader_options(int64_t rows) const {
  const MeshRank mesh_rank{program_.program.mesh(), program_.program.rank()};
  const int64_t parts = data_ranks(mesh_rank.mesh);
  return {.split = Split::held_out,
          .rows = rows / parts,
          .part = data_rank(mesh_rank),
          .parts = parts,
          .vocabulary_size = inputs_.vocabulary_size};
}

double Evaluator::batch_loss(const Batch& batch) { return sum(token_losses(batch)); }

StandaloneEvaluator::StandaloneEvaluator(EvaluationProgram program, const GivenTensors& weights,
                                         Runtime& runtime)
    : program_(std::move(program)),
      executor_({&program_.program}, std::span(&kEvaluate, 1), runtime, weights),
      evaluator_(program_, executor_, 0) {}

void require_evaluation_memory(const EvaluationProgram& program, const GivenTensors& weights,
                               const GivenTensors& shared, const ProgramSize& size,
                               const Runtime& runtime, int ranks, int copies) {
  const Program* const programs[] = {&program.program};
  int64_t needed =
      plan_memory(programs, std::span(&kEvaluate, 1), runtime.target(), shared).arena_bytes * ranks;
  if (const Accelerator* device = runtime.accelerator()) {
    if (needed <= device->free_bytes()) return;
    throw Error(
        "{} sequences of {} tokens at once take {} beside the weights, and the {} has {} left; "
        "lower --batch",
        size.sequences, size.context, format_bytes(needed), device->name(),
        format_bytes(device->free_bytes()));
  }
  for (const auto& [name, tensor] : weights) needed += tensor.bytes() * copies;
  const UsableMemory memory = usable_memory();
  if (needed <= memory.bytes) return;
  throw Error("{} sequences of {} tokens at once take {}, and {}; lower --batch", size.sequences,
              size.context, format_bytes(needed), memory.text());
}

SourcesEvaluation::SourcesEvaluation(Evaluator& evaluator, const TrainingData& data, int64_t rows,
                                     int64_t instances)
    : evaluator_(evaluator),
      data_(data),
      options_(evaluator.loader_options(rows)),
      instances_(instances) {
  for (const DataSource& source : data.sources) {
    const bool only_one = data.sources.size() == 1;  // then its loader throws Error without data
    if (only_one || source.instances->instances(Split::held_out) > 0) sources_.push_back(&source);
  }
  if (sources_.empty()) {
    throw Error("no source has held-out data; {}", empty_split_advice(Split::held_out));
  }
  begin_next_source();
}

void SourcesEvaluation::begin_next_source() {
  loader_.emplace(TrainingData{data_.tokenizer, {*sources_[results_.size()]}}, options_);
  const int64_t available = loader_->instances();
  evaluation_ = {.instances = instances_ > 0 ? std::min(instances_, available) : available};
  loss_sum_ = 0;
  instances_done_ = 0;
}

void SourcesEvaluation::next() {
  Batch batch = loader_->next();
  // The last batch may have more rows than are wanted. The surplus rows lose their targets.
  const int64_t all_rows = batch.parts * batch.rows;  // of all ranks, in the order of their parts
  const int64_t counted_rows = std::min(all_rows, evaluation_.instances - instances_done_);
  const int64_t own_rows =
      std::clamp<int64_t>(counted_rows - batch.part * batch.rows, 0, batch.rows);
  std::fill(batch.targets.begin() + own_rows * batch.context, batch.targets.end(), -1);
  loss_sum_ += evaluator_.batch_loss(batch);
  evaluation_.targets +=
      batch.target_count / all_rows * counted_rows;  // all rows have equally many targets
  instances_done_ += all_rows;
  if (instances_done_ < evaluation_.instances) return;
  evaluation_.loss = loss_sum_ / static_cast<double>(std::max<int64_t>(evaluation_.targets, 1));
  evaluation_.perplexity = std::exp(evaluation_.loss);
  const DataSource& source = *sources_[results_.size()];
  results_.push_back({source.name, source.weight, evaluation_});
  if (!done()) begin_next_source();
}

std::vector<SourceEvaluation> evaluate_sources(Evaluator& evaluator, const TrainingData& data,
                                               int64_t rows, int64_t instances) {
  SourcesEvaluation evaluation(evaluator, data, rows, instances);
  while (!evaluation.done()) evaluation.next();
  return evaluation.results();
}

int64_t evaluation_rows(const TrainingData& data, int64_t rows, int64_t instances) {
  int64_t largest = 1;  // instances of the largest source
  for (const DataSource& source : data.sources) {
    largest = std::max(largest, source.instances->instances(Split::held_out));
  }
  if (instances > 0) largest = std::min(largest, instances);
  return std::min(rows, largest);
}

Evaluation mean_evaluation(std::span<const SourceEvaluation> sources) {
  TESSERA_CHECK(!sources.empty(), "the mean of no evaluation");
  if (sources.size() == 1) return sources.front().evaluation;
  Evaluation mean;
  double weight_sum = 0;
  for (const auto& [name, weight, evaluation] : sources) {
    mean.loss += weight * evaluation.loss;
    weight_sum += weight;
    mean.targets += evaluation.targets;
    mean.instances += evaluation.instances;
  }
  mean.loss /= weight_sum;
  mean.perplexity = std::exp(mean.loss);
  return mean;
}

}  // namespace tessera
