// evaluation_task() opens the data, lays out the mesh and cuts the model into chunks. run_rank()
// writes the programs of a rank's chunks, takes its weights (rank_weights.h) and goes through the
// data.

#include "inference/evaluation_task.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/round_up.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "inference/rank_weights.h"
#include "plan/balance_stages.h"

namespace tessera {
namespace {

/// Opens the data to evaluate on. It must be tokenized as the model's training data was, because
/// losses are not comparable otherwise. Prepared data decides the context: the configuration of an
/// imported model has the longest context that the model supports, which data seldom has.
TrainingData open_data_of(const CheckpointEvaluationOptions& options, const LoadedModel& model) {
  DataConfig data = model.config.data;
  const std::string tokenizer = model.checkpoint.string();
  if (!options.data.path.empty()) {
    return open_held_out_data(options.data, data.context, tokenizer);
  }
  data.context = longest_context(named_sources(data), data.context);
  data.tokenizer = tokenizer;
  return open_data(data);
}

std::string ranks_text(const CheckpointEvaluationOptions& options) {
  return options.processes ? fmt::format("{} processes", options.ranks)
                           : fmt::format("--ranks ({})", options.ranks);
}

void require_processor_for_ranks(const CheckpointEvaluationOptions& options) {
  if (options.ranks == 1 || options.device == Device::cpu) return;
  throw Error("{}: several ranks compute on the processor, and --device is \"{}\"",
              ranks_text(options), word(options.device));
}

/// Returns the mesh of an evaluation. Throws Error unless the ranks can share the model and a
/// batch.
Mesh evaluation_mesh(const CheckpointEvaluationOptions& options, const RunConfig& config) {
  Mesh mesh = mesh_for_inference(config, options.ranks);
  if (options.batch % data_ranks(mesh) != 0) {
    throw Error(
        "--batch ({}) does not divide over {} data-parallel ranks, which {} leave beside "
        "parallel.tensor ({}), parallel.context ({}) and parallel.pipeline ({}); choose a multiple",
        options.batch, data_ranks(mesh), ranks_text(options), config.parallel.tensor,
        config.parallel.context, config.parallel.pipeline);
  }
  return mesh;
}

/// Returns a configuration with the numbers of layers in place of "balanced". The costs of the
/// evaluation decide, whose micro-batches are those of `config`.
RunConfig with_evaluation_layers(RunConfig config, const Mesh& mesh) {
  StageLayers& layers = config.parallel.stage_layers;
  if (!layers.balanced || model_chunks(config.parallel) == 1) return config;
  layers = {};
  const PassesToWrite passes = passes_to_write(config, {mesh, 0});
  const auto stages = static_cast<size_t>(passes.placement.ranks);
  const std::vector<ModelCosts> costs(stages, evaluation_costs(passes, mesh));
  // Nothing is kept for a backward pass, so this number has no influence.
  const std::vector<int> in_flight(stages, 1);
  layers.counts = balance_layers(costs, passes.placement, in_flight);
  return config;
}

/// Returns the losses of n-gram models that are counted on the training part of the data.
BaselineLoss baseline(const TrainingData& data) {
  if (data.sources.size() > 1) {
    throw Error("--baselines counts one source, and the data is a mix of {}; name one by --data",
                data.sources.size());
  }
  const InstanceSource& source = *data.sources.front().instances;
  if (source.instances(Split::train) == 0) {
    throw Error("--baselines counts the training part of the data, and {} has none here",
                source.description());
  }
  return ngram_baseline(source, data.tokenizer.ids.vocabulary_size);
}

}  // namespace

RunConfig evaluation_config(const CheckpointEvaluationOptions& options, const LoadedModel& model) {
  RunConfig config = model.config;
  config.parallel = options.parallel;
  config.train.recompute.clear();         // there is no backward pass
  config.train.recompute_stages.clear();  // they are stages of the training's layout
  config.file.clear();  // errors must not name the file: the layout comes from the options
  return config;
}

EvaluationTask evaluation_task(const CheckpointEvaluationOptions& options, LoadedModel model) {
  TrainingData data = open_data_of(options, model);
  require_processor_for_ranks(options);
  RunConfig config = evaluation_config(options, model);
  config.data.context = data.sources.front().instances->context();
  Mesh mesh = evaluation_mesh(options, config);
  const int64_t rows = evaluation_rows(data, options.batch, options.instances);
  config.train.micro_batch = ceil_div(rows, data_ranks(mesh));
  PassesToWrite passes =
      passes_to_write(with_evaluation_layers(std::move(config), mesh), {mesh, 0});
  return {.options = options,
          .model = std::move(model),
          .data = std::move(data),
          .mesh = std::move(mesh),
          .passes = std::move(passes)};
}

void EvaluationTask::require_memory(const Runtime& runtime, std::span<const int> ranks,
                                    int copies) const {
  std::map<int, int64_t> bytes_of_stage;  // of one rank
  int64_t needed = 0;
  for (const int rank : ranks) {
    const auto [stage, is_new] = bytes_of_stage.try_emplace(mesh.stage(rank), 0);
    if (is_new) {
      const EvaluationPasses written = write_evaluation_passes(passes, {mesh, rank});
      stage->second = evaluation_bytes(written, shared_weights(model, written), runtime.target());
    }
    needed += stage->second;
  }
  require_evaluation_memory(needed, model.weights, passes.size, runtime, copies);
}

std::vector<SourceEvaluation> EvaluationTask::run_rank(const RankControl& control,
                                                       Runtime& runtime) const {
  EvaluationPasses written = write_evaluation_passes(passes, {mesh, control.rank()});
  const GivenTensors weights = rank_weights(model, written);
  StandaloneEvaluator evaluator(std::move(written), weights, runtime, control);
  return evaluate_sources(*evaluator, data, passes.size.sequences, options.instances);
}

CheckpointEvaluation EvaluationTask::report() const {
  CheckpointEvaluation report{.checkpoint = model.checkpoint,
                              .step = model.step,
                              .capacity_factor = model.config.model.capacity_factor};
  if (options.baselines) report.baselines = baseline(data);
  return report;
}

}  // namespace tessera
