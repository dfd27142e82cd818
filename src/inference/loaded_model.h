#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "config/run_config.h"
#include "data/tokenizer.h"
#include "engine/memory_plan.h"
#include "model/parameter.h"
#include "program/runtime.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace tessera {

/// A model from a checkpoint, for use without training: its configuration, its tokenizer, and its
/// weights in the element types that its programs compute in.
struct LoadedModel {
  RunConfig config;
  fs::path checkpoint;
  int64_t step = 0;
  std::unique_ptr<Tokenizer> tokenizer;
  /// The tokens that end a text, in addition to the tokenizer's end of document. They are the
  /// eos_token_id of an imported model, which may hold several (such as Llama 3.1's end of a turn).
  std::vector<int32_t> end_tokens;
  ParameterList parameters;
  GivenTensors weights;  ///< by unit; a unit is a block of memory that several parameters share
  std::unique_ptr<Arena> device_memory;  ///< of the weights; null on the processor

  /// Moves the weights to the runtime's device. The runtime must outlive the model. Throws Error if
  /// the device cannot compute in the model's precision, or has too little memory.
  void move_to(Runtime& runtime);

  /// Returns the tensor of the parameter at this index of the list.
  Tensor weight(size_t index) const;
};

/// Loads a checkpoint. `path` is one checkpoint, a run's folder or its folder of checkpoints. Of
/// several checkpoints it loads the newest complete one, and warns if a newer one is broken. Throws
/// Error when there is none, and when the checkpoint turns out to be damaged while it is read; the
/// error then names an older complete one, if there is one.
LoadedModel load_model(const fs::path& path, int threads, const Logger& logger = Logger());

/// Returns a tensor on the processor for each unit of the list, by the unit's name, without values.
GivenTensors unit_tensors(const ParameterList& parameters);

}  // namespace tessera
