#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "verify/layout_run.h"

namespace tessera {

/// Runs a trial with whole batches, from which each rank takes its sequences.
inline LayoutResults run_layout(const LayoutTrial& trial, const StepBatches& steps) {
  return run_layout(trial, TrialBatches{.whole = steps, .parts = {}});
}

namespace testing {

/// Returns micro-batches of random tokens for some steps. Some targets are left out, and documents
/// begin at random positions. The result depends on the arguments alone.
inline StepBatches random_batches(const ProgramSize& size, int64_t vocabulary_size, int steps,
                                  int micro_batches, uint64_t seed) {
  const CounterRandom random(seed, "verify");
  const auto vocabulary = static_cast<uint64_t>(vocabulary_size);
  uint64_t next = 0;
  StepBatches result(static_cast<size_t>(steps));
  for (std::vector<Batch>& step : result) {
    for (int i = 0; i < micro_batches; ++i) {
      Batch batch{.rows = size.sequences, .context = size.context};
      for (int64_t t = 0; t < size.sequences * size.context; ++t) {
        batch.tokens.push_back(static_cast<int32_t>(random.bits(next++) % vocabulary));
      }
      // A token that occurs ends documents, so that a row has several.
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

}  // namespace testing

}  // namespace tessera
