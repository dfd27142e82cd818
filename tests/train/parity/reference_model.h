#pragma once

#include <string>
#include <vector>

#include "data/loader.h"
#include "model/model_config.h"
#include "state/optimizer_config.h"
#include "support/reference_tensors.h"

namespace tessera::testing {

/// A tiny random model of a family and what Hugging Face transformers computed with it: one of
/// tests/fixtures/models, made by tests/reference/models.py, which says what each tensor is.
class ReferenceModel {
 public:
  explicit ReferenceModel(const std::string& name);

  static std::vector<std::string> names();

  const ModelConfig& config() const { return config_; }
  int64_t steps() const { return steps_; }
  int64_t sequences() const { return sequences_; }
  int64_t context() const { return context_; }

  /// What the trained weights were trained with.
  static OptimizerConfig optimizer();
  /// The batch of a step, complete.
  Batch batch(int64_t step) const;
  /// A tensor of expected.safetensors, f32.
  std::vector<float> expected(const std::string& name) const { return tensors_.f32(name); }

 private:
  ModelConfig config_;
  ReferenceTensors tensors_;
  int64_t steps_ = 0;
  int64_t sequences_ = 0;
  int64_t context_ = 0;
};

}  // namespace tessera::testing
