// An Evaluator fills the programs' inputs, runs them and sums the losses of the tokens. The program
// with the head gathers these losses from all ranks of its pipeline stage, which then tell those of
// the other stages. So every rank has the same sums.

#include "inference/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/usable_memory.h"
#include "config/mesh_of.h"
#include "engine/memory_plan.h"
#include "pipeline/agree_on_lists.h"

namespace tessera {
namespace {

/// The lane on which the stage with the head tells the others the losses.
constexpr std::string_view kLossesLane = "losses";

}  // namespace

Evaluator::Evaluator(const EvaluationPasses& passes, int first_program, Executor& executor)
    : passes_(passes),
      executor_(executor),
      first_program_(first_program),
      runner_(executor),
      list_(passes.list(first_program)) {
  for (const EvaluationProgram& chunk : passes.chunks) {
    inputs_.push_back({.values = chunk.batch, .vocabulary_size = passes.vocabulary_size});
  }
}

Tensor Evaluator::token_losses(const Batch& batch) {
  runner_.run(list_, [&](const StageAction& action) {
    const auto chunk = static_cast<size_t>(action.run.program - first_program_);
    inputs_[chunk].fill(executor_, action.run.program, action.run.micro_batch, batch);
  });
  const EvaluationProgram& last = passes_.chunks.back();  // of this stage
  const int last_program = first_program_ + static_cast<int>(std::ssize(passes_.chunks)) - 1;
  const DType loss_dtype = accumulation_dtype(last.parameters.units().front().dtype);
  Tensor losses = last.token_loss ? on_host(executor_.tensor(last.token_loss, last_program))
                                  : Tensor({batch.parts * batch.rows * batch.context}, loss_dtype);
  const Mesh& mesh = last.program.mesh();
  if (mesh.size(mesh.pipeline()) > 1) {
    const std::array axes{mesh.pipeline()};
    const int head_stage = passes_.placement.rank_of_chunk.back();
    executor_.runtime()
        .groups()
        .over(axes, kLossesLane)
        .broadcast("token losses", head_stage, losses);
  }
  return losses;
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
  const MeshRank mesh_rank = passes_.mesh_rank();
  const int64_t parts = data_ranks(mesh_rank.mesh);
  return {.split = Split::held_out,
          .rows = rows / parts,
          .part = data_rank(mesh_rank),
          .parts = parts,
          .vocabulary_size = passes_.vocabulary_size};
}

double Evaluator::batch_loss(const Batch& batch) { return sum(token_losses(batch)); }

StandaloneEvaluator::StandaloneEvaluator(EvaluationPasses passes, const GivenTensors& weights,
                                         Runtime& runtime, const RankControl& control)
    : passes_(std::move(passes)),
      executor_(passes_.programs(), passes_.list().for_plan(), runtime, weights),
      evaluator_(passes_, /*first_program=*/0, executor_) {
  const StageList list = passes_.list();
  agree_on_lists(control, executor_, list.for_plan(), {&list, 1});
}

int64_t evaluation_bytes(const EvaluationPasses& passes, const GivenTensors& shared,
                         const Target& target) {
  return plan_memory(passes.programs(), passes.list().for_plan(), target, shared).arena_bytes;
}

void require_evaluation_memory(int64_t needed, const GivenTensors& weights, const ProgramSize& size,
                               const Runtime& runtime, int copies) {
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
