// Shares out the layers of a model over the chunks of a pipeline (Llama 3, section 3.1.2, gives the
// first and the last stage one layer fewer). stage_costs() reads what each part costs from the
// program of the whole model. balance_layers() moves layers between chunks while that improves the
// worst stage.

#include "plan/balance_stages.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "config/mesh_of.h"
#include "config/phases.h"
#include "config/pipeline_of.h"
#include "engine/lifetimes.h"
#include "pipeline/clock.h"
#include "plan/programs.h"

namespace tessera {
namespace {

/// Returns the part that a node belongs to; null for what each chunk has alike.
PartCost* part_of(ModelCosts& costs, const Node& node) {
  // The merge of a scaled residual before the last norm has the number of all layers.
  if (node.layer == std::ssize(costs.layers)) return &costs.head;
  if (node.layer >= 0) return &costs.layers[static_cast<size_t>(node.layer)];
  if (node.block == Block::embedding) return &costs.embedding;
  return node.block == Block::attention ? nullptr : &costs.head;
}

void add_passes(ModelCosts& costs, const Program& program) {
  const Lifetimes lifetimes(program, {Segment::forward, Segment::backward});
  for (const Node& node : program.nodes()) {
    PartCost* part = part_of(costs, node);
    if (part == nullptr) continue;
    const Cost cost = node_cost(program, node);
    part->flops += cost.flops + cost.repeated_flops;
    for (const Value output : node.outputs) {
      if (!lifetimes.saved[static_cast<size_t>(output.id)]) continue;
      part->activation_bytes += program.spec(output).bytes();
    }
  }
}

/// Returns the bytes that a rank keeps of a parameter from step to step, if pieces are even.
int64_t state_bytes(const RunConfig& config, const Mesh& mesh, const ParameterSpec& parameter) {
  const DType wide = accumulation_dtype(parameter.dtype);
  const bool muon = config.optimizer.name == OptimizerName::muon &&
                    is_hidden_matrix(parameter.role, parameter.shape);
  const int64_t moments = muon ? 1 : 2;
  const int64_t masters = wide == parameter.dtype ? 0 : 1;
  const int64_t elements = parameter.piece_shape.elements();
  const ShardAxes axes = shard_plan(config.shard, mesh).axes;
  const auto bytes_of_piece = [&](int64_t element_bytes, int axis_count) {
    return elements * element_bytes / cut_ranks(mesh, axis_count, parameter.distribution.view());
  };
  return bytes_of_piece(dtype_size(parameter.dtype), axes.weights) +
         bytes_of_piece(dtype_size(wide), axes.gradients) +
         bytes_of_piece(dtype_size(wide) * (moments + masters), axes.optimizer);
}

/// Adds what the parts keep of their parameters. `bytes_of` says it of one of them.
void add_states(ModelCosts& costs, const ModelConfig& model, const ParameterList& parameters,
                const std::function<int64_t(const ParameterSpec&)>& bytes_of) {
  const ChunkRange embedding{.layers = {}, .embedding = true, .head = false};
  const ChunkRange head{.layers = {}, .embedding = false, .head = true};
  for (const ParameterSpec& parameter : parameters.specs()) {
    const int64_t bytes = bytes_of(parameter);
    const auto add_if_used = [&](PartCost& part, const ChunkRange& range) {
      if (uses(range, model, parameter)) part.state_bytes += bytes;
    };
    add_if_used(costs.embedding, embedding);
    add_if_used(costs.head, head);
    for (int64_t i = 0; i < model.layers; ++i) {
      add_if_used(costs.layers[static_cast<size_t>(i)],
                  {.layers = {.first = i, .end = i + 1}, .embedding = false, .head = false});
    }
  }
}

using Counts = std::vector<int64_t>;  // layers, by chunk

double flops_of_all_parts(const ModelCosts& costs) {
  double flops = costs.embedding.flops + costs.head.flops;
  for (const PartCost& layer : costs.layers) flops += layer.flops;
  return flops;
}

/// Moves layers between chunks, one rule after the other. All numbers are integers, so that equal
/// layers of a stage cost exactly the same.
class LayerMoves {
 public:
  LayerMoves(std::span<const ModelCosts> costs, const ChunkPlacement& placement,
             std::span<const int> in_flight)
      : placement_(placement), in_flight_(in_flight) {
    double flops = 0;
    for (const ModelCosts& stage : costs) flops = std::max(flops, flops_of_all_parts(stage));
    // Single FLOPs, or larger units where the model's FLOPs do not fit into an integer.
    const double unit = std::max(1.0, flops / static_cast<double>(int64_t{1} << 60));
    const auto load_of = [&](const PartCost& part) {
      return Load{std::llround(part.flops / unit), part.state_bytes, part.activation_bytes};
    };
    for (const ModelCosts& stage : costs) {
      ModelLoads& model = models_.emplace_back();
      model.embedding = load_of(stage.embedding);
      model.head = load_of(stage.head);
      model.before.emplace_back();
      for (const PartCost& layer : stage.layers) {
        model.before.push_back(model.before.back() + load_of(layer));
      }
    }
  }

  Counts balanced() {
    Counts counts = even_layers(std::ssize(models_.front().before) - 1, placement_.chunks());
    improve(counts, [&](const Counts& next) { return stage_flops(next); });
    improve(counts, [&](const Counts& next) { return stage_bytes(next); });
    improve(counts, [&](const Counts& next) { return chunk_flops(next); });
    return counts;
  }

 private:
  using Measure = std::function<std::vector<int64_t>(const Counts& counts)>;
  /// A rule that was followed, and the largest number that it allows.
  struct Bound {
    Measure measure;
    int64_t largest = 0;
  };
  struct Load {
    int64_t flops = 0, state_bytes = 0, activation_bytes = 0;

    Load operator+(const Load& other) const {
      return {flops + other.flops, state_bytes + other.state_bytes,
              activation_bytes + other.activation_bytes};
    }
    Load operator-(const Load& other) const {
      return {flops - other.flops, state_bytes - other.state_bytes,
              activation_bytes - other.activation_bytes};
    }
  };
  /// The loads of the model's parts on one stage.
  struct ModelLoads {
    Load embedding, head;
    std::vector<Load> before;  // by layer: the sum of all before it; and of all layers
  };

  /// Returns the loads on the stage that has a chunk.
  const ModelLoads& model_of(size_t chunk) const {
    return models_[static_cast<size_t>(placement_.rank(static_cast<int>(chunk)))];
  }
  std::vector<Load> chunk_loads(const Counts& counts) const {
    std::vector<Load> loads;
    int64_t end = 0;
    for (const int64_t count : counts) {
      const int64_t first = std::exchange(end, end + count);
      const std::vector<Load>& before = model_of(loads.size()).before;
      loads.push_back(before[static_cast<size_t>(end)] - before[static_cast<size_t>(first)]);
    }
    loads.front() = loads.front() + model_of(0).embedding;
    loads.back() = loads.back() + model_of(counts.size() - 1).head;
    return loads;
  }
  std::vector<Load> stage_loads(const Counts& counts) const {
    const std::vector<Load> chunks = chunk_loads(counts);
    std::vector<Load> loads(static_cast<size_t>(placement_.ranks));
    for (size_t i = 0; i < chunks.size(); ++i) {
      Load& load = loads[static_cast<size_t>(placement_.rank(static_cast<int>(i)))];
      load = load + chunks[i];
    }
    return loads;
  }

  std::vector<int64_t> chunk_flops(const Counts& counts) const {
    std::vector<int64_t> result;
    for (const Load& load : chunk_loads(counts)) result.push_back(load.flops);
    return result;
  }
  std::vector<int64_t> stage_flops(const Counts& counts) const {
    std::vector<int64_t> result;
    for (const Load& load : stage_loads(counts)) result.push_back(load.flops);
    return result;
  }
  /// A micro-batch in flight counts with the mean of the stage's chunks.
  std::vector<int64_t> stage_bytes(const Counts& counts) const {
    std::vector<int64_t> result;
    for (const Load& load : stage_loads(counts)) {
      const auto stage = static_cast<int>(result.size());
      const auto chunks = std::ranges::count(placement_.rank_of_chunk, stage);
      result.push_back(load.state_bytes +
                       load.activation_bytes * in_flight_[static_cast<size_t>(stage)] / chunks);
    }
    return result;
  }

  bool within_bounds(const Counts& counts) const {
    return std::ranges::all_of(bounds_, [&](const Bound& bound) {
      return std::ranges::max(bound.measure(counts)) <= bound.largest;
    });
  }

  /// Takes the best move until none lowers the numbers of `measure`, of which the largest counts
  /// first. The largest is a bound from then on.
  void improve(Counts& counts, const Measure& measure) {
    const auto descending = [&](const Counts& next) {
      std::vector<int64_t> numbers = measure(next);
      std::ranges::sort(numbers, std::greater());
      return numbers;
    };
    std::vector<int64_t> least = descending(counts);
    for (bool moved = true; moved;) {
      moved = false;
      const Counts from = counts;
      for (const Counts& next : moves(from)) {
        std::vector<int64_t> numbers = descending(next);
        if (numbers >= least || !within_bounds(next)) continue;
        least = std::move(numbers);
        counts = next;
        moved = true;
      }
    }
    bounds_.push_back({measure, least.front()});
  }

  /// Returns the counts after each possible move of one layer.
  static std::vector<Counts> moves(const Counts& counts) {
    std::vector<Counts> result;
    for (size_t giver = 0; giver < counts.size(); ++giver) {
      const bool has_end = giver == 0 || giver + 1 == counts.size();
      if (counts[giver] <= (has_end ? 0 : 1)) continue;
      for (size_t taker = 0; taker < counts.size(); ++taker) {
        if (taker == giver) continue;
        result.push_back(counts);
        --result.back()[giver];
        ++result.back()[taker];
      }
    }
    return result;
  }

  const ChunkPlacement& placement_;
  std::span<const int> in_flight_;
  std::vector<ModelLoads> models_;  // by stage
  std::vector<Bound> bounds_;
};

/// Returns the configuration with even numbers of layers.
RunConfig with_even_layers(RunConfig config) {
  config.parallel.stage_layers = {};
  return config;
}

/// Returns the costs of the parts of a model whose blocks are recomputed so.
ModelCosts training_costs(const RunConfig& phase, const Mesh& mesh, const Recompute& recompute) {
  const PassesToWrite passes = passes_to_write(phase, {mesh, 0});
  const Chunk model = write_training(passes.model, passes.compute, passes.size, recompute,
                                     {mesh, 0}, passes.experts);
  ModelCosts costs;
  costs.layers.resize(static_cast<size_t>(phase.model.layers));
  add_passes(costs, model.program);
  add_states(costs, phase.model, model.outline.parameters,
             [&](const ParameterSpec& parameter) { return state_bytes(phase, mesh, parameter); });
  return costs;
}

}  // namespace

std::vector<ModelCosts> stage_costs(const RunConfig& config, const Mesh& mesh) {
  const RunConfig first_phase = with_even_layers(phases_of(config).front().config);
  std::vector<ModelCosts> costs;
  std::vector<Recompute> recomputed;  // by stage
  for (int stage = 0; stage < mesh.size(mesh.pipeline()); ++stage) {
    const Recompute recompute = recompute_of(recomputed_on(first_phase.train, stage));
    const auto equal = std::ranges::find(recomputed, recompute);
    costs.push_back(equal == recomputed.end()
                        ? training_costs(first_phase, mesh, recompute)
                        : costs[static_cast<size_t>(equal - recomputed.begin())]);
    recomputed.push_back(recompute);
  }
  return costs;
}

ModelCosts evaluation_costs(PassesToWrite passes, const Mesh& mesh) {
  passes.placement = loop_placement(1, 1);
  passes.ranges = {whole_model(passes.model)};
  const EvaluationPasses written = write_evaluation_passes(passes, {mesh, 0});
  const EvaluationProgram& model = written.chunks.front();
  ModelCosts costs;
  costs.layers.resize(static_cast<size_t>(passes.model.layers));
  add_passes(costs, model.program);
  add_states(costs, passes.model, model.parameters, [](const ParameterSpec& parameter) {
    return parameter.piece_shape.elements() * dtype_size(parameter.dtype);
  });
  return costs;
}

std::vector<int64_t> balance_layers(std::span<const ModelCosts> costs,
                                    const ChunkPlacement& placement,
                                    std::span<const int> in_flight) {
  TESSERA_CHECK(std::ssize(costs) == placement.ranks, "costs of {} stages for {}", costs.size(),
                placement.ranks);
  TESSERA_CHECK(std::ssize(in_flight) == placement.ranks, "{} peaks for {} stages",
                in_flight.size(), placement.ranks);
  return LayerMoves(costs, placement, in_flight).balanced();
}

RunConfig with_stage_layers(RunConfig config, const Mesh& mesh) {
  StageLayers& layers = config.parallel.stage_layers;
  if (!layers.balanced || model_chunks(config.parallel) == 1) return config;
  const PipelineSchedule schedule = pipeline_schedule(phases_of(config).front().config, mesh);
  std::vector<int> in_flight;
  for (const RankFigures& rank : measure(schedule, {}).ranks) {
    in_flight.push_back(rank.peak_in_flight);
  }
  layers = {.counts = balance_layers(stage_costs(config, mesh), schedule.placement, in_flight),
            .balanced = false};
  return config;
}

}  // namespace tessera
