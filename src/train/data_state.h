#pragma once

#include <map>
#include <string>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "data/loader.h"

namespace tessera {

/// Returns the values by which a checkpoint records the data: the name, fingerprint, weight and
/// position of each source, and the tokenizer's fingerprint. Sources of other phases weigh 0.
std::map<std::string, StateValue> data_values(const TrainingData& data, const LoaderState& state);

/// Returns the position in `data` from which a run continues after a checkpoint. A source that the
/// run had continues at its position, and a new one starts at its beginning. With the same sources
/// and weights, the instances that follow are the same as without a stop. With others, the counts
/// of drawn instances start at 0 again, and the change is logged. Throws Error, which begins with
/// `origin`, if the tokenizer is another, if a source of the same name holds other data, or if none
/// of the run's sources is left.
LoaderState restored_state(const CheckpointState& saved, const TrainingData& data,
                           const std::string& origin, const Logger& logger);

}  // namespace tessera
