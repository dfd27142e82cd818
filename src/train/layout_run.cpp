#include "train/layout_run.h"

#include "base/random.h"
#include "base/rank_threads.h"
#include "comm/in_process/run_mesh.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "train/collected_results.h"

namespace tessera {
namespace {

/// One rank's training.
class RankRun {
 public:
  RankRun(const LayoutTrial& trial, int threads, RankGroups& groups)
      : trial_(trial),
        runtime_(host_target(threads)),
        programs_(layout_programs(trial, groups.rank())),
        executor_(programs_.list(), programs_.actions(), runtime_),
        store_(executor_, programs_.update_number(), programs_.rounding_number(),
               chunk().parameters, programs_.update.sharing),
        step_(programs_, executor_, store_) {
    runtime_.join(groups);
    if (trial.initial.empty()) {
      store_.initialize(trial.seed, runtime_.threads());
    } else {
      take_initial();
    }
  }

  void run(std::span<const std::vector<Batch>> steps, ResultSink& collected) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto number = static_cast<int64_t>(i) + 1;
      accumulate(steps[i], i, collected);
      step_.update(trial_.optimizer, {.step = number, .steps = std::ssize(steps)});
      collected.put_step(i, {step_.results().wait(), expert_tokens()});
      for (size_t parameter = 0; parameter < store_.parameters().size(); ++parameter) {
        const ParameterState& state = store_.parameters()[parameter];
        if (i == 0 && state.gradient.defined()) {
          collected.put("gradient", store_, parameter, state.held_gradient());
        }
        if (i + 1 == steps.size()) collected.put("weight", store_, parameter, state.master);
      }
    }
  }

 private:
  const Chunk& chunk() const { return programs_.chunks.front(); }

  void take_initial() {
    for (size_t i = 0; i < store_.parameters().size(); ++i) {
      const ParameterState& state = store_.parameters()[i];
      const Tensor whole(state.spec.shape, state.master.dtype());
      convert(trial_.initial.at(state.spec.name), whole);
      for (const auto& [part, piece] : store_.parts(i, state.master)) piece.take(whole, part);
    }
    store_.masters_to_weights();
  }

  using Layers = std::vector<std::vector<int32_t>>;  // the choices of each mixture layer

  /// Runs a step's micro-batches, and gives what they made on the way.
  void accumulate(std::span<const Batch> batches, size_t step, ResultSink& collected) {
    const bool streams = trial_.streams && step == 0;
    const bool chooses = trial_.mesh.ranks() == 1 && trial_.pinned.empty();
    ValueStream stream;
    StepChoices choices(batches.size());
    SumsOfParts sums(executor_, chunk(), trial_.part_order);
    for (int part = 0; part < trial_.parts; ++part) {
      step_.begin(batches);
      for (size_t i = 0; i < batches.size(); ++i) {
        Layers chosen;
        observe(streams ? &stream : nullptr, chooses ? &chosen : nullptr);
        pin(step, i, part);
        step_.add(trial_.parts == 1 ? batches[i] : part_of(batches[i], part, trial_.parts));
        append(chosen, choices[i]);
      }
      if (trial_.parts > 1) sums.take();
    }
    executor_.set_observer({});
    if (trial_.parts > 1) sums.give();
    if (streams) collected.put_stream(std::move(stream));
    if (chooses) collected.put_choices(std::move(choices));
  }

  /// Notes what the next passes make.
  void observe(ValueStream* stream, Layers* chosen) {
    executor_.set_observer([=, this](const Program& of, const Node& node,
                                     std::span<const Tensor> outputs) {
      if (&of != &chunk().program) return;
      if (stream != nullptr) stream->note(of, node, outputs);
      const bool chooses = node.operation->name() == "router_top_k" && node.phase == Phase::forward;
      if (chosen == nullptr || !chooses) return;
      const std::span<const int32_t> indices = outputs[1].values<int32_t>();
      chosen->emplace_back(indices.begin(), indices.end());
    });
  }

  /// Puts the choices of a part's tokens behind those of the parts before.
  static void append(const Layers& part, Layers& whole) {
    whole.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      whole[i].insert(whole[i].end(), part[i].begin(), part[i].end());
    }
  }

  /// Gives a part of the next micro-batch the experts of its tokens, if they are pinned.
  void pin(size_t step, size_t micro_batch, int part) {
    if (trial_.pinned.empty()) return;
    const int64_t k = trial_.model.experts_per_token;
    size_t layer = 0;
    for (const std::vector<int32_t>& chosen : trial_.pinned[step][micro_batch]) {
      const size_t own = chosen.size() / static_cast<size_t>(trial_.parts);
      write_piece(executor_, 0, 0, chunk().batch.choices[layer++],
                  {static_cast<int64_t>(own) / k, k},
                  std::span(chosen).subspan(static_cast<size_t>(part) * own, own));
    }
  }

  std::vector<std::vector<double>> expert_tokens() {
    std::vector<std::vector<double>> layers;
    const size_t first = chunk().loss_sums().size();
    for (size_t layer = 0; layer < chunk().expert_tokens.size(); ++layer) {
      const Value total = programs_.update.totals[first + layer];
      const auto counts = executor_.tensor(total, programs_.update_number()).values<double>();
      layers.emplace_back(counts.begin(), counts.end());
    }
    return layers;
  }

  const LayoutTrial& trial_;
  Runtime runtime_;
  StepPrograms programs_;
  Executor executor_;
  ParameterStore store_;
  TrainingStep step_;
};

/// Gives what a rank that is a thread has to the others of its process.
class SharedSink final : public ResultSink {
 public:
  SharedSink(const Mesh& mesh, int rank, CollectedResults& results)
      : mesh_(mesh), rank_(rank), results_(results) {}

  void put(const std::string& kind, const ParameterStore& store, size_t parameter,
           const Tensor& held) override {
    const std::string& name = store.parameters()[parameter].spec.name;
    for (const auto& [part, piece] : store.parts(parameter, held)) {
      results_.put(kind, name, piece, part);
    }
  }
  void put_step(size_t number, const LayoutStep& step) override { results_.put_step(number, step); }
  void put_choices(StepChoices step) override { results_.put_choices(std::move(step)); }
  void put_stream(ValueStream stream) override {
    results_.put_stream(rank_, mesh_.ranks(), std::move(stream));
  }

 private:
  const Mesh& mesh_;
  int rank_;
  CollectedResults& results_;
};

}  // namespace

void run_layout_rank(const LayoutTrial& trial, int threads, RankGroups& groups,
                     std::span<const std::vector<Batch>> steps, ResultSink& sink) {
  RankRun(trial, threads, groups).run(steps, sink);
}

StepPrograms layout_programs(const LayoutTrial& trial, int rank) {
  ProgramSize size = trial.size;
  size.sequences /= trial.parts;
  size.pinned_choices = !trial.pinned.empty();
  StepPrograms programs =
      step_programs(write_training(trial.model, trial.compute, size, trial.recompute,
                                   {trial.mesh, rank}, trial.experts),
                    trial.optimizer, trial.shard);
  if (trial.change && trial.mesh.ranks() > 1) trial.change(programs);
  return programs;
}

LayoutResults run_layout(const LayoutTrial& trial, std::span<const std::vector<Batch>> steps) {
  World world(trial.mesh.ranks(), trial.rank_timeout);
  CollectedResults collected;
  const int threads = threads_of_rank(trial.threads, trial.mesh.ranks());
  run_mesh(world, trial.mesh, [&](RankGroups& groups) {
    SharedSink sink(trial.mesh, groups.rank(), collected);
    run_layout_rank(trial, threads, groups, steps, sink);
  });
  return collected.results();
}

std::vector<std::vector<Batch>> random_batches(const ProgramSize& size, int64_t vocabulary_size,
                                               int steps, int micro_batches, uint64_t seed) {
  const CounterRandom random(seed, "verify");
  const auto vocabulary = static_cast<uint64_t>(vocabulary_size);
  uint64_t next = 0;
  std::vector<std::vector<Batch>> result(static_cast<size_t>(steps));
  for (std::vector<Batch>& step : result) {
    for (int i = 0; i < micro_batches; ++i) {
      Batch batch{.rows = size.sequences, .context = size.context};
      for (int64_t t = 0; t < size.sequences * size.context; ++t) {
        batch.tokens.push_back(static_cast<int32_t>(random.bits(next++) % vocabulary));
      }
      // A token that occurs ends documents, so that there are several in a row.
      complete_batch(batch, batch.tokens.front());
      for (int32_t& target : batch.targets) {
        if (target >= 0 && random.bits(next++) % 5 == 0) {
          target = -1;
          --batch.target_count;
        }
      }
      step.push_back(std::move(batch));
    }
  }
  return result;
}

}  // namespace tessera
