#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// A product whose B stays the same over several runs: laid out once, in the caller's memory, as
/// the product reads it fastest, where that pays for the rows of A that will be multiplied by it.
class PackedGemm {
 public:
  /// `rows` is how many rows of A the runs have together. No memory is taken yet.
  PackedGemm(Context& context, GemmShape shape, int64_t rows);

  /// Of memory for pack() and run().
  int64_t workspace_bytes() const;
  /// Lays B out in `workspace`, which is this object's until its last run.
  void pack(const void* b, std::byte* workspace);
  void run(const void* a, void* c) const;

 private:
  int64_t packed_bytes() const;

  const Gemm* gemm_;
  const void* b_ = nullptr;
  std::byte* scratch_ = nullptr;
};

}  // namespace tessera
