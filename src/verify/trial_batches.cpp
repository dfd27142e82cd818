#include "verify/trial_batches.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "config/mesh_of.h"
#include "train/run_loader.h"

// loader_batches() runs a training run's loaders over a source of random tokens: one for a single
// rank, and one for each rank of the mesh.

namespace tessera {
namespace {

constexpr int32_t kEndOfDocument = 0;  // a token that ends a document

/// A source of random tokens, cut into documents of at most about ten tokens on average. A token is
/// drawn from two random numbers: whether a document ends there, and the token if it does not.
class RandomTokens final : public InstanceSource {
 public:
  RandomTokens(uint64_t seed, int64_t vocabulary_size, int64_t context, int64_t instances)
      : random_(seed, "verify"),
        vocabulary_size_(vocabulary_size),
        context_(context),
        instances_(instances) {}

  int64_t context() const override { return context_; }
  int64_t instances(Split) const override { return instances_; }
  void read(Split, int64_t, int64_t instance, std::span<int32_t> tokens) const override {
    auto next = static_cast<uint64_t>(2 * instance * context_);
    for (int32_t& token : tokens) {
      const bool ends = random_.bits(next++) % 10 == 0;
      const auto drawn = random_.bits(next++) % static_cast<uint64_t>(vocabulary_size_);
      token = ends ? kEndOfDocument : static_cast<int32_t>(drawn);
    }
  }
  void will_need(Split, int64_t, int64_t) const override {}
  std::string location(Split, int64_t, int64_t instance, int64_t token) const override {
    return fmt::format("token {} of instance {} of {}", token, instance, description());
  }
  std::string fingerprint() const override { return description(); }
  std::string description() const override { return "random tokens"; }

 private:
  CounterRandom random_;
  int64_t vocabulary_size_;
  int64_t context_;
  int64_t instances_;
};

/// Returns a phase with the trial's sizes; only the fields that a loader reads are set. `sequences`
/// is the number per data rank.
RunPhase phase_of(const LayoutTrial& trial, int64_t sequences, int micro_batches) {
  RunPhase phase;
  phase.config.model.vocabulary_size = trial.model.vocabulary_size;
  phase.config.train.micro_batch = sequences;
  phase.config.train.global_batch = trial.size.sequences * micro_batches;
  return phase;
}

StepBatches read_all(const RunData& data, const RunPhase& phase, const MeshRank& rank, int steps) {
  RunLoader loader(data, {&phase, 1}, rank);
  StepBatches result;
  for (int step = 0; step < steps; ++step) result.push_back(loader.next_step());
  return result;
}

/// Removes the targets of one position in five, chosen by its index among those of all steps, so
/// that all ranks remove the same. The last position of a row has no target to begin with.
class TargetRemover {
 public:
  explicit TargetRemover(const LayoutTrial& trial)
      : random_(trial.seed, "verify targets"), size_(trial.size) {}

  void remove_from(StepBatches& steps) const {
    int64_t first_row = 0;
    for (std::vector<Batch>& step : steps) {
      for (Batch& batch : step) {
        for (int64_t row = 0; row < size_.sequences; ++row)
          remove_from_row(batch, row, first_row + row);
        first_row += size_.sequences;
      }
    }
  }

 private:
  /// Removes targets of a row that this batch or another part of it holds. `row` is its index among
  /// the rows of all parts, and `global_row` among all steps' rows. Targets count over all parts.
  void remove_from_row(Batch& batch, int64_t row, int64_t global_row) const {
    const int64_t own_row = row - batch.part * batch.rows;
    for (int64_t position = 0; position + 1 < size_.context; ++position) {
      const auto counter = static_cast<uint64_t>(global_row * size_.context + position);
      if (random_.bits(counter) % 5 != 0) continue;
      --batch.target_count;
      if (own_row < 0 || own_row >= batch.rows) continue;
      batch.targets[static_cast<size_t>(own_row * size_.context + position)] = -1;
    }
  }

  CounterRandom random_;
  ProgramSize size_;
};

}  // namespace

TrialBatches loader_batches(const LayoutTrial& trial, int steps, int micro_batches) {
  const int64_t parts = data_ranks(trial.mesh);
  const int64_t instances = steps * micro_batches * trial.size.sequences;
  TrainingData tokens{.tokenizer = {.ids = {.vocabulary_size = trial.model.vocabulary_size,
                                            .end_of_document = kEndOfDocument}}};
  tokens.sources.push_back(
      {.name = "random",
       .instances = std::make_shared<RandomTokens>(trial.seed, trial.model.vocabulary_size,
                                                   trial.size.context, instances)});
  const RunData data(std::move(tokens));
  const TargetRemover remover(trial);
  TrialBatches batches;
  batches.whole =
      read_all(data, phase_of(trial, trial.size.sequences, micro_batches), {Mesh(), 0}, steps);
  remover.remove_from(batches.whole);
  const RunPhase phase = phase_of(trial, trial.size.sequences / parts, micro_batches);
  for (int rank = 0; rank < trial.mesh.ranks(); ++rank) {
    batches.parts.push_back(read_all(data, phase, {trial.mesh, rank}, steps));
    remover.remove_from(batches.parts.back());
  }
  return batches;
}

void require_shared_batches(const Mesh& mesh, const TrialBatches& batches) {
  if (batches.parts.empty()) return;
  std::vector<int> firsts(static_cast<size_t>(data_ranks(mesh)), -1);  // by data rank
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    int& first = firsts[static_cast<size_t>(data_rank({mesh, rank}))];
    if (first < 0) first = rank;
    const StepBatches& expected = batches.parts[static_cast<size_t>(first)];
    const StepBatches& found = batches.parts[static_cast<size_t>(rank)];
    if (found == expected) continue;
    const auto step = std::ranges::mismatch(expected, found).in1 - expected.begin();
    throw Error(
        "the loader of rank {} gives other batches than that of rank {}, first in step {}: ranks "
        "that share sequences must get the same ones",
        rank, first, step + 1);
  }
}

}  // namespace tessera
