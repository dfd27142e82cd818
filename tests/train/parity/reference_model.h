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
  /// The same with another skip class.
  ReferenceModel(const std::string& name, SkipExpert skip) : ReferenceModel(name) {
    config_.skip_expert = skip;
  }

  static std::vector<std::string> names();

  const ModelConfig& config() const { return config_; }
  int64_t steps() const { return steps_; }
  int64_t sequences() const { return sequences_; }
  int64_t context() const { return context_; }

  /// What the trained weights were trained with.
  static OptimizerConfig optimizer();
  /// The batch of a step, complete.
  Batch batch(int64_t step) const;
  /// A tensor of expected.safetensors, f32, or the part of it that is the parameter's.
  std::vector<float> expected(const std::string& name) const;

  /// A tensor of expected.safetensors, f64, or the part of it that is the parameter's.
  std::vector<double> expected_f64(const std::string& name) const;
  std::vector<int32_t> expected_tokens(const std::string& name) const { return tensors_.i32(name); }

  /// How far the loss in bf16 may be off, relative to the loss. ZAYA1's random models have large
  /// logits, and transformers' own loss is off by half of it.
  double loss_tolerance() const { return config_.family == Family::zaya ? 4e-3 : 2e-3; }
  /// The error of transformers' gradient of a parameter in bf16 (see mean_error()). That of a few
  /// entries is one draw: below the median of the model's parameters it says nothing.
  double expected_error(const std::string& parameter) const;

 private:
  ModelConfig config_;
  ReferenceTensors tensors_;
  int64_t steps_ = 0;
  int64_t sequences_ = 0;
  int64_t context_ = 0;
};

}  // namespace tessera::testing
