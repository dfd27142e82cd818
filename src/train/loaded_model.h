#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "config/run_config.h"
#include "data/tokenizer.h"
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
  std::vector<ParameterSpec> specs;
  std::vector<Tensor> weights;  ///< by parameter, in the order of `specs`
};

/// Loads a checkpoint: `path` is a run's folder, its folder of checkpoints (the newest complete one
/// is taken) or one checkpoint. Memory comes from `pool`, where the tensors stay.
LoadedModel load_model(const fs::path& path, MemoryPool& pool, int threads);

}  // namespace tessera
