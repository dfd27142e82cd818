#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// A product whose B stays the same over several runs. B is copied once, to the caller's memory, in
/// the layout that the product reads fastest, if that pays off for the rows of A.
class PackedGemm {
 public:
  /// `rows` is the number of rows of A in all runs together. No memory is taken yet.
  PackedGemm(Runtime& runtime, GemmShape shape, int64_t rows);

  /// Returns the bytes of memory for pack() and run().
  int64_t workspace_bytes() const { return packed_bytes_ + scratch_bytes_; }
  /// Returns the bytes for a product that does not exist yet.
  static int64_t workspace_bytes(const Target& target, GemmShape shape, int64_t rows);
  /// Copies B to `workspace`, which belongs to this object until its last run.
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
