#include "ops/gemm/packed_gemm.h"

#include "tensor/memory_layout.h"

namespace tessera {
namespace {

/// Laying B out takes about as long as it saves over this many rows of A.
constexpr int64_t kFewestRows = 512;

const Gemm& prepare(Context& context, GemmShape shape, int64_t rows) {
  shape.packed_b = rows >= kFewestRows;
  return prepare_gemm(context, shape);
}

}  // namespace

PackedGemm::PackedGemm(Context& context, GemmShape shape, int64_t rows)
    : gemm_(&prepare(context, shape, rows)) {}

int64_t PackedGemm::packed_bytes() const { return MemoryLayout::rounded(gemm_->packed_bytes()); }

int64_t PackedGemm::workspace_bytes() const {
  return packed_bytes() + MemoryLayout::rounded(gemm_->workspace_bytes());
}

void PackedGemm::pack(const void* b, std::byte* workspace) {
  b_ = gemm_->pack(b, workspace);
  scratch_ = workspace + packed_bytes();
}

void PackedGemm::run(const void* a, void* c) const { gemm_->run(a, b_, c, scratch_); }

}  // namespace tessera
