#pragma once

#include "data/byte_tokenizer.h"
#include "inference/loaded_model.h"
#include "model/model.h"
#include "ops/host_target.h"
#include "program/runtime.h"

namespace tessera::testing {

/// A small model in memory, with the byte tokenizer and a context of 64.
struct SmallModel {
  /// Weights are drawn, or all zero, so that every token is as probable.
  explicit SmallModel(int64_t vocabulary_size, bool zero = false, int64_t layers = 1,
                      bool tied_head = false) {
    ModelConfig& config = model.config.model;
    config = family_preset(Family::llama);
    config.layers = layers;
    config.tied_head = tied_head;
    config.hidden_size = 16;
    config.heads = 2;
    config.kv_heads = 2;
    config.feed_forward_size = 16;
    config.vocabulary_size = vocabulary_size;
    model.config.data.context = 64;
    model.config.train.precision = Precision::fp32;
    model.tokenizer = std::make_unique<ByteTokenizer>();
    model.parameters = model_parameters(config, DType::f32);
    model.weights = unit_tensors(model.parameters);
    for (size_t i = 0; i < model.parameters.specs().size(); ++i) {
      model.weight(i).fill_zero();
      const ParameterSpec& spec = model.parameters.specs()[i];
      if (!zero) initialize(spec, 1, TensorPiece(spec.shape), model.weight(i), 1);
    }
  }

  LoadedModel model;
  Runtime runtime{host_target(2)};
};

}  // namespace tessera::testing
