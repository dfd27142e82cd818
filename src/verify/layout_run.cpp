#include "verify/layout_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "comm/communicator.h"
#include "comm/in_process/run_mesh.h"
#include "comm/rank_control.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "pipeline/agree_on_lists.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "verify/collected_results.h"

// try_layout() runs a RankRun on each rank of a trial, in threads. Each gives its results to
// its own SharedSink, which puts them into the CollectedResults of all ranks.

namespace tessera {
namespace {

/// The training of one rank of a trial, whose results go to a sink. In each step it runs the
/// micro-batches (part by part, or with pinned experts, if the trial says so), replaces the
/// gradients if it follows another run, updates the weights, and in the first step counts the
/// bytes of sums of gradients.
class RankRun {
 public:
  RankRun(const LayoutTrial& trial, int threads, RankGroups& groups, FoundOrders& found)
      : trial_(trial),
        groups_(groups),
        runtime_(host_target(threads)),
        programs_(layout_programs(trial, groups.rank(), found)),
        executor_(programs_.list(), programs_.actions(), runtime_),
        store_(store_of(programs_, executor_)),
        step_(programs_, executor_, store_) {
    runtime_.join(groups);
    agree_on_lists(RankControl(groups), executor_, programs_.actions(), programs_.stage_lists());
    if (trial.initial.empty()) {
      store_.initialize(trial.seed, runtime_.threads());
    } else {
      set_initial_weights();
    }
  }

  void run(const StepBatches& steps, ResultSink& sink) {
    GradientBytes bytes;
    for (size_t i = 0; i < steps.size(); ++i) {
      step_.set_overlaps(i > 0);  // the first update's bytes are counted
      forward_backward(steps[i], i, sink);
      if (!trial_.followed.empty()) {
        put_gradients(i, sink);
        follow(trial_.followed[i]);
      }
      const WeightUpdate weights{.step = static_cast<int64_t>(i) + 1, .steps = std::ssize(steps)};
      if (i == 0) {
        bytes.counted = counted_update(weights);
      } else {
        step_.update(trial_.optimizer, weights);
      }
      if (trial_.followed.empty()) put_gradients(i, sink);
      sink.put_step(i, {step_.results().wait(), expert_tokens()});
    }
    bytes.expected = gradient_bytes_of_rank(mesh_rank(), programs_.model.parameters, store_.shard(),
                                            trial_.shard.unit_options.gradients_wire.format);
    sink.put_bytes(bytes);
    put_weights(sink);
  }

 private:
  const std::vector<Chunk>& chunks() const { return programs_.chunks(); }
  MeshRank mesh_rank() const { return {groups_.mesh(), groups_.rank()}; }

  /// Gives the gradients to the sink: those of several ranks after the update, which sums them, and
  /// those of a single rank that follows before they are replaced.
  void put_gradients(size_t step, ResultSink& sink) const {
    for (const KeptTensor* sum : store_.tensors_of_all_stages({Kept::summed_gradient})) {
      sink.put({Collected::gradient, step}, *sum, store_.shard());
    }
  }

  /// Gives the masters to the sink and, of several ranks, the weights that they compute with.
  void put_weights(ResultSink& sink) const {
    for (const KeptTensor* tensor : store_.tensors_of_all_stages({Kept::weight, Kept::master})) {
      const bool is_master = tensor->kind == Kept::master;
      if (!is_master && groups_.mesh().ranks() == 1) continue;
      sink.put({is_master ? Collected::weight : Collected::computed_weight}, *tensor,
               store_.shard());
    }
  }

  /// Replaces the gradients that the next update takes. Only a trial of one rank follows.
  void follow(const NamedTensors& gradients) const {
    TESSERA_CHECK(groups_.mesh().ranks() == 1, "one of {} ranks follows", groups_.mesh().ranks());
    for (const KeptTensor* gradient : store_.tensors({Kept::gradient})) {
      convert(gradients.at(gradient->parameter->name), gradient->memory);
    }
  }

  /// Updates the weights. Returns the bytes that this rank received for sums of gradients. An
  /// observer counts them, so that the lanes of this update do not run beside each other.
  double counted_update(const WeightUpdate& update) {
    // Leaves out what the passes have received: only the update sums gradients over ranks.
    executor_.join_groups();
    const std::vector<Node>& nodes = programs_.update.program.nodes();
    for (size_t index = 0; index < nodes.size(); ++index) newly_received(index);
    int64_t gradient_bytes = 0;
    executor_.set_observer([&](const Program& program, const Node& node, std::span<const Tensor>) {
      const int64_t received = newly_received(static_cast<size_t>(&node - program.nodes().data()));
      if (sums_gradient(program, node)) gradient_bytes += received;
    });
    step_.update(trial_.optimizer, update);
    executor_.set_observer({});
    return static_cast<double>(gradient_bytes);
  }

  /// Returns the bytes received over the groups of a node of the update since the last call for
  /// these groups.
  int64_t newly_received(size_t node) {
    int64_t bytes = 0;
    for (const Communicator* const group : executor_.groups(programs_.update_number(), node)) {
      int64_t received = 0;
      for (size_t kind = 0; kind < kWordsOf<Collective>.size(); ++kind) {
        received += group->traffic(static_cast<Collective>(kind)).received_bytes;
      }
      bytes += received - std::exchange(received_before_[group], received);
    }
    return bytes;
  }

  /// Returns whether a node of the update changes a main gradient, as its sum over ranks does.
  static bool sums_gradient(const Program& program, const Node& node) {
    return std::ranges::any_of(node.operation->updated_inputs(), [&](int input) {
      const Value changed = node.inputs[static_cast<size_t>(input)];
      return program.info(program.base(changed)).kind == ValueKind::main_gradient;
    });
  }

  /// Sets the weights to those with which the trial begins.
  void set_initial_weights() {
    for (const KeptTensor* master : store_.tensors({Kept::master})) {
      const Tensor whole(master->parameter->shape, master->dtype);
      convert(trial_.initial.at(master->parameter->name), whole);
      master->for_each_piece(
          [&](const TensorPiece& piece, const Tensor& part) { piece.copy_from(whole, part); });
    }
    store_.masters_to_weights();
  }

  using LayerChoices = std::vector<std::vector<int32_t>>;  // the choices of each mixture layer

  /// Runs a step's micro-batches, and gives the values and choices of experts to the sink.
  void forward_backward(std::span<const Batch> batches, size_t step, ResultSink& sink) {
    const bool records_values = trial_.streams && step == 0;
    const bool records_choices = trial_.mesh.ranks() == 1 && trial_.pinned.empty();
    ValueStream stream;
    StepChoices choices(batches.size());
    SumsOfParts sums(store_, programs_.model.sums, trial_.sum_order);
    for (int part = 0; part < trial_.parts; ++part) {
      std::vector<LayerChoices> chosen(batches.size());
      LayerChoices* chosen_now = nullptr;  // of the forward pass that runs
      step_.on_inputs([&](const TrainingStep::BegunRun& run) {
        chosen_now = &chosen[static_cast<size_t>(run.micro_batch)];
        pin(step, part, run);
      });
      observe(records_values ? &stream : nullptr, records_choices ? &chosen_now : nullptr);
      step_.forward_backward(parts_of(batches, part), batches);
      step_.on_inputs({});
      for (size_t i = 0; i < batches.size(); ++i) append(chosen[i], choices[i]);
      if (trial_.parts > 1) sums.add_part();
    }
    executor_.set_observer({});
    if (trial_.parts > 1) sums.write_back();
    if (records_values) sink.put_stream(std::move(stream));
    if (records_choices) sink.put_choices(std::move(choices));
  }

  /// Returns one of the parts of each micro-batch.
  std::vector<Batch> parts_of(std::span<const Batch> batches, int part) const {
    std::vector<Batch> parts;
    for (const Batch& batch : batches) {
      parts.push_back(trial_.parts == 1 ? batch : part_of_batch(batch, part, trial_.parts));
    }
    return parts;
  }

  /// Records the values and choices of the passes that run from now on; null records none. The
  /// choices go to the list to which `chosen` points when they are made.
  void observe(ValueStream* stream, LayerChoices* const* chosen) {
    executor_.set_observer(
        [=, this](const Program& program, const Node& node, std::span<const Tensor> outputs) {
          const bool of_a_chunk = std::ranges::any_of(
              chunks(), [&](const Chunk& chunk) { return &program == &chunk.program; });
          if (!of_a_chunk) return;
          if (stream != nullptr) stream->note(program, node, outputs);
          const bool chooses_experts =
              node.operation->name() == "router_top_k" && node.phase == Phase::forward;
          if (chosen == nullptr || !chooses_experts) return;
          const std::span<const int32_t> indices = outputs[1].values<int32_t>();  // [tokens, k]
          (*chosen)->emplace_back(indices.begin(), indices.end());
        });
  }

  /// Appends the choices of a part's tokens to those of the parts before it.
  static void append(const LayerChoices& part, LayerChoices& whole) {
    whole.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      whole[i].insert(whole[i].end(), part[i].begin(), part[i].end());
    }
  }

  /// Sets the experts of a part of a micro-batch before a forward pass, if choices are pinned.
  void pin(size_t step, int part, const TrainingStep::BegunRun& run) {
    if (trial_.pinned.empty()) return;
    const int64_t k = trial_.model.experts_per_token;
    const LayerChoices& layers = trial_.pinned[step][static_cast<size_t>(run.micro_batch)];
    size_t layer = mixture_layers_before(run.chunk);
    for (const Value choices : chunks()[run.chunk].batch.choices) {
      const std::vector<int32_t>& chosen = layers[layer++];
      const size_t part_size = chosen.size() / static_cast<size_t>(trial_.parts);
      write_piece(executor_, run.program, run.frame, choices,
                  {static_cast<int64_t>(part_size) / k, k},
                  std::span(chosen).subspan(static_cast<size_t>(part) * part_size, part_size));
    }
  }

  /// Returns the number of the model's mixture layers before those of a chunk of this rank.
  size_t mixture_layers_before(size_t chunk) const {
    if (trial_.mesh.ranks() == 1 || !trial_.pipeline.has_chunks()) return 0;
    const MeshRank rank = mesh_rank();
    const int of_model =
        trial_.pipeline.schedule.placement.chunks_of(rank.mesh.stage(rank.rank))[chunk];
    const int64_t first = trial_.pipeline.ranges[static_cast<size_t>(of_model)].layers.first;
    return static_cast<size_t>(std::max<int64_t>(first - trial_.model.dense_layers, 0));
  }

  std::vector<std::vector<double>> expert_tokens() {
    std::vector<std::vector<double>> layers;
    for (const StepSum& layer : programs_.model.sums.expert_tokens) {
      const Tensor total = store_.total(layer);
      const std::span<const double> counts = total.values<double>();
      layers.emplace_back(counts.begin(), counts.end());
    }
    return layers;
  }

  const LayoutTrial& trial_;
  RankGroups& groups_;
  Runtime runtime_;
  StepPrograms programs_;
  Executor executor_;
  ParameterStore store_;
  TrainingStep step_;
  std::map<const Communicator*, int64_t> received_before_;  // at its last newly_received()
};

/// Gives the results of a rank that is a thread to the CollectedResults of all ranks.
class SharedSink final : public ResultSink {
 public:
  SharedSink(const Mesh& mesh, int rank, CollectedResults& results)
      : mesh_(mesh), rank_(rank), results_(results) {}

  void put(const CollectedKey& key, const KeptTensor& tensor,
           const StateShard& /*shard*/) override {
    if (!tensor.memory.defined()) return;  // another pipeline stage's
    tensor.for_each_piece([&](const TensorPiece& piece, const Tensor& part) {
      results_.put(key, tensor.parameter->name, piece, part);
    });
  }
  void put_step(size_t step_index, const LayoutStep& step) override {
    results_.put_step(rank_, step_index, step);
  }
  void put_choices(StepChoices step) override { results_.put_choices(std::move(step)); }
  void put_bytes(const GradientBytes& rank_bytes) override { results_.put_bytes(rank_bytes); }
  void put_stream(ValueStream stream) override {
    results_.put_stream(rank_, mesh_.ranks(), std::move(stream));
  }

 private:
  const Mesh& mesh_;
  int rank_;
  CollectedResults& results_;
};

}  // namespace

const StepBatches& TrialBatches::of_rank(const MeshRank& mesh_rank) const {
  if (mesh_rank.mesh.ranks() == 1 || parts.empty()) return whole;
  return parts[static_cast<size_t>(mesh_rank.rank)];
}

void run_layout_rank(const LayoutTrial& trial, int threads, RankGroups& groups,
                     const TrialBatches& batches, FoundOrders& found, ResultSink& sink) {
  RankRun(trial, threads, groups, found).run(batches.of_rank({groups.mesh(), groups.rank()}), sink);
}

namespace {

/// Writes the programs of a rank without overlap.
StepPrograms written_programs(const LayoutTrial& trial, int rank) {
  ProgramSize size = trial.size;
  size.sequences /= trial.parts;
  size.pinned_choices = !trial.pinned.empty();
  PassesToWrite passes{.model = trial.model,
                       .compute = trial.compute,
                       .size = size,
                       .recompute = trial.recompute,
                       .experts = trial.experts,
                       .placement = loop_placement(1, 1),
                       .ranges = {whole_model(trial.model)}};
  const bool has_chunks = trial.mesh.ranks() > 1 && trial.pipeline.has_chunks();
  if (has_chunks) {
    passes.placement = trial.pipeline.schedule.placement;
    passes.ranges = trial.pipeline.ranges;
    if (!recomputes(trial.pipeline.recompute_stages, trial.mesh.stage(rank))) passes.recompute = {};
  }
  const MeshRank mesh_rank{trial.mesh, rank};
  ShardPlan shard = trial.shard;
  if (trial.mesh.ranks() == 1) shard.axes = {};
  passes.cut = cut_model(passes, trial.optimizer, shard, mesh_rank);
  Passes written = write_passes(passes, mesh_rank);
  written.most_micro_batches = trial.micro_batches;
  if (has_chunks) written.schedules.emplace(trial.micro_batches, trial.pipeline.schedule);
  ModelOutline model = outline_of(passes, written, mesh_rank);
  return step_programs(std::move(written), std::move(model), trial.optimizer, shard);
}

}  // namespace

StepPrograms layout_programs(const LayoutTrial& trial, int rank, FoundOrders& found) {
  StepPrograms programs = written_programs(trial, rank);
  if (trial.overlap && !trial.streams) {  // streams are compared in the order as written
    const auto of_rank = [&](int other) { return written_programs(trial, other); };
    overlap(programs, *trial.overlap, of_rank, found);
  }
  if (trial.change && trial.mesh.ranks() > 1) {
    // Turns are ranges of steps, and the change may add steps or take them away.
    for (Passes& passes : programs.sets) passes.turns = {};
    trial.change(programs);
  }
  return programs;
}

StepPrograms layout_programs(const LayoutTrial& trial, int rank) {
  FoundOrders own;
  return layout_programs(trial, rank, own);
}

LayoutResults try_layout(const LayoutTrial& trial, const TrialBatches& batches) {
  World world(trial.mesh.ranks(), trial.rank_timeout);
  CollectedResults collected;
  FoundOrders found;
  const int threads = threads_of_rank(trial.threads, trial.mesh.ranks());
  run_mesh(world, trial.mesh, [&](RankGroups& groups) {
    SharedSink sink(trial.mesh, groups.rank(), collected);
    run_layout_rank(trial, threads, groups, batches, found, sink);
  });
  return collected.results();
}

LayoutResults run_layout(const LayoutTrial& trial, const TrialBatches& batches) {
  LayoutResults results = try_layout(trial, batches);
  if (results.unequal_results) throw Error("{}", *results.unequal_results);
  if (results.unequal_copies) throw Error("{}", *results.unequal_copies);
  return results;
}

}  // namespace tessera
