#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/memory_plan.h"
#include "model/model.h"
#include "program/runtime.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace tessera {

/// Continues one sequence, with key-value caches of `capacity` positions. Has one program for each
/// number of tokens that are fed at once: as a rule two, for the prompt and for a single token.
class Decoder {
 public:
  /// `weights` are the units of the model's parameters, in the types that its programs compute in.
  /// They are shared, not copied. `runtime` must outlive the decoder.
  Decoder(const ModelConfig& config, DType compute, const GivenTensors& weights, int64_t capacity,
          Runtime& runtime);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Feeds tokens at the sequence's end. Returns the logits after each token, [tokens, vocabulary]
  /// in f32 (f64 for a model computed in f64), in memory of the runtime's device. The next call may
  /// overwrite that memory. Throws Error on a token outside the model's vocabulary, and
  /// InternalError beyond the capacity.
  Tensor feed(std::span<const int32_t> tokens);

 private:
  struct Step;
  /// Returns the program for `count` tokens at once. Writes it at its first use.
  Step& step_for(int64_t count);
  /// Makes the caches that a program declares and that do not exist yet, filled with zeros.
  void add_caches(const Program& program);

  const ModelConfig config_;
  DType compute_;
  int64_t capacity_;
  Runtime& runtime_;
  std::vector<std::unique_ptr<Arena>> cache_memory_;
  GivenTensors given_;                              // weights and caches, which all programs share
  std::map<int64_t, std::unique_ptr<Step>> steps_;  // by the number of tokens
  int64_t cached_tokens_ = 0;
};

}  // namespace tessera
