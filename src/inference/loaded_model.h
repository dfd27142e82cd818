#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "config/run_config.h"
#include "data/tokenizer.h"
#include "engine/memory_plan.h"
#include "model/parameter.h"
#include "tensor/tensor.h"

namespace tessera {

/// A model out of a checkpoint, for use without training: its configuration, tokenizer and weights
/// in the element types that its programs compute in.
struct LoadedModel {
  RunConfig config;
  fs::path checkpoint;
  int64_t step = 0;
  std::unique_ptr<Tokenizer> tokenizer;
  /// Tokens that end a text beside the tokenizer's end of document: those of an imported model's
  /// eos_token_id, which may be several (Llama 3.1's end of a turn).
  std::vector<int32_t> end_tokens;
  ParameterList parameters;
  GivenTensors weights;  ///< the parameters' units, for plans that share them

  /// The tensor of the parameter at this position of the list.
  Tensor weight(size_t position) const;
};

/// Loads a checkpoint: `path` is a run's folder, its folder of checkpoints (the newest complete one
/// is taken, with a warning where a newer one is broken) or one checkpoint. Throws Error when the
/// checkpoint turns out to be damaged while it is read, naming an older one that is complete.
LoadedModel load_model(const fs::path& path, int threads, const Logger& logger = Logger());

/// Memory for the units of a list, undefined.
GivenTensors unit_tensors(const ParameterList& parameters);
/// The part of the units that a parameter of the list is.
Tensor parameter_tensor(const ParameterList& parameters, const GivenTensors& units,
                        const ParameterSpec& spec);

}  // namespace tessera
