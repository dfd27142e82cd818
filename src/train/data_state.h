#pragma once

#include <map>
#include <string>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "data/loader.h"

namespace tessera {

/// Returns what a checkpoint keeps of the data: the name, fingerprint, weight and position of each
/// source, and the tokenizer's fingerprint. A source of other phases has the weight 0.
std::map<std::string, StateValue> data_values(const TrainingData& data, const LoaderState& state);

/// Returns the position from which `data` continues after a checkpoint. With the sources and
/// weights of the checkpoint, the instances that follow are the same as without a stop. Otherwise a
/// source that the run had continues at its position, a new one starts at its beginning, and the
/// shares are counted anew from here; the change is logged. Throws Error, beginning with `origin`,
/// when the tokenizer is another, when a source of the same name holds other data, or when none of
/// the run's sources is left.
LoaderState restored_state(const CheckpointState& saved, const TrainingData& data,
                           const std::string& origin, const Logger& logger);

}  // namespace tessera
