#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// A product whose B stays the same over several runs: laid out once, in the caller's memory, as
/// the product reads it fastest, where that pays for the rows of A that will be multiplied by it.
class PackedGemm {
 public:
  /// `rows` is how many rows of A the runs have together. No memory is taken yet.
  PackedGemm(Runtime& runtime, GemmShape shape, int64_t rows);

  /// Memory for pack() and run().
  int64_t workspace_bytes() const { return packed_bytes_ + scratch_bytes_; }
  /// The same of a product that is not there yet.
  static int64_t workspace_bytes(const Target& target, GemmShape shape, int64_t rows);
  /// Lays B out in `workspace`, which is this object's until its last run.
  void pack(const void* b, std::byte* workspace);
  void run(const void* a, void* c) const;

 private:
  int64_t packed_bytes_;
  int64_t scratch_bytes_;
  const Gemm* gemm_;
  const void* b_ = nullptr;
  std::byte* scratch_ = nullptr;
};

}  // namespace tessera
