#pragma once

#include <map>
#include <string>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "data/loader.h"

namespace tessera {

/// What a checkpoint keeps of the data: of each source its name, what tells it from others, its
/// weight and its position.
std::map<std::string, StateValue> data_values(const TrainingData& data, const LoaderState& state);

/// The position from which `data` goes on after a checkpoint. With the sources and weights that it
/// was saved with, the instances that follow are the same as without a stop. Otherwise a source
/// that was there goes on where it was, a new one starts at its beginning, and the shares count
/// from here on; what changes is logged. Throws Error, beginning with `origin`, when the tokenizer
/// is another, when a source of the same name holds other data, and when no source is left of those
/// that the run had.
LoaderState restored_state(const CheckpointState& saved, const TrainingData& data,
                           const std::string& origin, const Logger& logger);

}  // namespace tessera
