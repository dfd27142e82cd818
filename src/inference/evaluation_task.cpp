// evaluation_task() opens the data and lays out the mesh. program() writes the program of a rank.
// rank_weights() returns its weights: shared with the model, or copies of the pieces of the rank.

#include "inference/evaluation_task.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/round_up.h"
#include "comm/tensor_piece.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"

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

/// Returns the mesh of an evaluation of sequences of `context` tokens. Throws Error unless the
/// ranks can share the model and a batch.
Mesh evaluation_mesh(const CheckpointEvaluationOptions& options, const LoadedModel& model,
                     int64_t context) {
  RunConfig config = model.config;
  config.parallel = options.parallel;
  config.file.clear();  // errors must not name the file: the layout comes from the options
  config.data.context = context;
  require_one_chunk(config.parallel, "eval");
  Mesh mesh = mesh_for_inference(config, options.ranks);
  if (options.batch % data_ranks(mesh) != 0) {
    throw Error(
        "--batch ({}) does not divide over {} data-parallel ranks, which {} leave beside "
        "parallel.tensor ({}) and parallel.context ({}); choose a multiple",
        options.batch, data_ranks(mesh), ranks_text(options), options.parallel.tensor,
        options.parallel.context);
  }
  return mesh;
}

/// Returns the units of the model's weights that the rank has whole: its program, which declares
/// `rank_parameters`, can use them without a copy.
GivenTensors shared_weights(const LoadedModel& model, const ParameterList& rank_parameters) {
  std::set<int> copied;  // units with a parameter that differs in extent or offset
  for (size_t i = 0; i < rank_parameters.specs().size(); ++i) {
    const ParameterSpec& spec = rank_parameters.specs()[i];
    const ParameterSpec& whole = model.parameters.specs()[i];
    const bool is_whole = spec.piece_shape == whole.shape && spec.unit_offset == whole.unit_offset;
    if (!is_whole) copied.insert(spec.unit_index);
  }
  GivenTensors shared;
  for (int i = 0; i < std::ssize(rank_parameters.units()); ++i) {
    const ParameterUnit& unit = rank_parameters.units()[static_cast<size_t>(i)];
    const auto found = model.weights.find(unit.name);
    if (copied.contains(i) || found == model.weights.end()) continue;
    // The model's unit is longer if its last parameters are split: the rank's are in another unit.
    if (found->second.elements() == unit.elements) shared.emplace(unit.name, found->second);
  }
  return shared;
}

/// Returns the weights for the program of one rank. The units that the rank has whole share the
/// model's memory. The other units are copies of the rank's pieces.
GivenTensors rank_weights(const LoadedModel& model, const ParameterList& rank_parameters,
                          const MeshRank& mesh_rank) {
  TESSERA_CHECK(rank_parameters.specs().size() == model.parameters.specs().size(),
                "{} parameters for a model of {}", rank_parameters.specs().size(),
                model.parameters.specs().size());
  const GivenTensors shared = shared_weights(model, rank_parameters);
  GivenTensors weights = shared;
  for (size_t i = 0; i < rank_parameters.specs().size(); ++i) {
    const ParameterSpec& spec = rank_parameters.specs()[i];
    const ParameterUnit& unit = rank_parameters.units()[static_cast<size_t>(spec.unit_index)];
    if (shared.contains(unit.name)) continue;
    const auto& memory =
        weights.try_emplace(unit.name, Shape{unit.elements}, unit.dtype).first->second;
    const TensorPiece piece(mesh_rank.mesh, spec.distribution, spec.shape, mesh_rank.rank);
    piece.copy_from(model.weight(i), memory.view(spec.unit_offset, spec.piece_shape));
  }
  return weights;
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

EvaluationTask evaluation_task(const CheckpointEvaluationOptions& options, LoadedModel model) {
  TrainingData data = open_data_of(options, model);
  const int64_t context = data.sources.front().instances->context();
  require_processor_for_ranks(options);
  Mesh mesh = evaluation_mesh(options, model, context);
  const int64_t rows = evaluation_rows(data, options.batch, options.instances);
  const ProgramSize size{.sequences = round_up(rows, data_ranks(mesh)),
                         .context = context,
                         .document_mask = model.config.data.document_mask};
  return {.options = options,
          .model = std::move(model),
          .data = std::move(data),
          .mesh = std::move(mesh),
          .size = size};
}

EvaluationProgram EvaluationTask::program(int rank) const {
  ExpertLayout experts = expert_layout(options.parallel);
  experts.rows_bound = 0;  // no token is dropped, so a rank may receive more rows than in training
  return write_evaluation(inference_config(model.config.model),
                          compute_dtype(model.config.train.precision), size, {mesh, rank}, experts);
}

void EvaluationTask::require_memory(const Runtime& runtime, int rank, int ranks, int copies) const {
  const EvaluationProgram rank_program = program(rank);
  require_evaluation_memory(rank_program, model.weights,
                            shared_weights(model, rank_program.parameters), size, runtime, ranks,
                            copies);
}

std::vector<SourceEvaluation> EvaluationTask::run_rank(int rank, Runtime& runtime) const {
  EvaluationProgram rank_program = program(rank);
  const GivenTensors weights = rank_weights(model, rank_program.parameters, {mesh, rank});
  StandaloneEvaluator evaluator(std::move(rank_program), weights, runtime);
  return evaluate_sources(*evaluator, data, size.sequences, options.instances);
}

CheckpointEvaluation EvaluationTask::report() const {
  CheckpointEvaluation report{.checkpoint = model.checkpoint,
                              .step = model.step,
                              .capacity_factor = model.config.model.capacity_factor};
  if (options.baselines) report.baselines = baseline(data);
  return report;
}

}  // namespace tessera
