#pragma once

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/checkpoint_state.h"
#include "tensor/tensor.h"

namespace tessera {

/// Named tensors with memory of their own, that is easily reached in a test.
class SampleTensors {
 public:
  Tensor add(const std::string& group, const std::string& name, const Shape& shape, DType dtype) {
    const auto size = static_cast<size_t>(shape.elements() * dtype_size(dtype));
    memory_.push_back(std::make_unique<std::vector<std::byte>>(size + 1));
    items_.push_back({group, name, Tensor::wrap(memory_.back()->data(), shape, dtype)});
    return items_.back().tensor;
  }

  /// Fills every tensor with finite values that depend on the seed and the tensor's name.
  void fill(uint64_t seed) {
    for (const NamedTensor& item : items_) {
      const CounterRandom random(seed, item.label());
      for (int64_t i = 0; i < item.tensor.bytes(); ++i) {
        // Below 0x40 in every byte no floating element is infinite or NaN.
        item.tensor.raw()[i] = std::byte(random.bits(static_cast<uint64_t>(i)) & 0x3f);
      }
    }
  }

  const std::vector<NamedTensor>& items() const { return items_; }

  /// The same names, types and shapes with memory of zeros.
  SampleTensors empty_copy() const {
    SampleTensors copy;
    for (const NamedTensor& item : items_) {
      copy.add(item.group, item.name, item.tensor.shape(), item.tensor.dtype());
    }
    return copy;
  }

  bool same_bytes(const SampleTensors& other) const {
    if (items_.size() != other.items_.size()) return false;
    for (size_t i = 0; i < items_.size(); ++i) {
      const Tensor& a = items_[i].tensor;
      const Tensor& b = other.items_[i].tensor;
      if (a.bytes() != b.bytes()) return false;
      if (std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) != 0) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
  std::vector<NamedTensor> items_;
};

/// A small model with an optimizer: every element type, a scalar, an empty tensor.
inline SampleTensors sample_tensors(uint64_t seed = 1) {
  SampleTensors tensors;
  tensors.add("parameters", "embedding", {7, 4}, DType::bf16);
  tensors.add("parameters", "layers.0.attention.query", {4, 3}, DType::bf16);
  tensors.add("parameters", "norm", {5}, DType::f32);
  tensors.add("optimizer", "embedding", {7, 4}, DType::f32);
  tensors.add("optimizer", "layers.0.attention.query", {4, 3}, DType::f64);
  tensors.add("optimizer", "scale", Shape(), DType::f64);
  tensors.add("router", "counts", {3, 1, 2}, DType::i32);
  tensors.add("router", "codes", {9}, DType::u8);
  tensors.add("router", "tokens", {3}, DType::u16);
  tensors.add("router", "nothing", {0, 4}, DType::f32);
  tensors.fill(seed);
  return tensors;
}

inline CheckpointState sample_state(int64_t step) {
  CheckpointState state;
  state.step = step;
  state.values = {{"data.epoch", int64_t{2}},
                  {"data.instance", int64_t{123456789012345}},
                  {"loss_scale", 0.1},
                  {"tokenizer", std::string("8b1a9953c4611296")}};
  state.config = "[run]\ndirectory = \"runs/sample\"\n";
  state.created_by = "tessera test";
  return state;
}

/// Writes a file without flushing it to the disk, which would make thousands of rounds slow. The
/// old file is removed because file systems flush one that is truncated and written again.
inline void put(const fs::path& path, std::string_view content) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// The content with one bit changed.
inline std::string flipped(std::string content, size_t byte, int bit) {
  content[byte] = static_cast<char>(content[byte] ^ (1 << bit));
  return content;
}

}  // namespace tessera
