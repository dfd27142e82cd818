#include "ops/gemm/packed_gemm.h"

#include "ops/gemm/gemm_plan.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// The number of rows of A over which packing B saves about as much time as it takes.
constexpr int64_t kFewestRows = 512;

GemmShape packed(GemmShape shape, int64_t rows) {
  shape.packed_b = rows >= kFewestRows;
  return shape;
}

int64_t packed_bytes(const Target& target, const GemmShape& shape) {
  return aligned_bytes(gemm_packed_bytes(target, shape));
}

int64_t scratch_bytes(const Target& target, const GemmShape& shape) {
  return aligned_bytes(gemm_workspace_bytes(target, shape));
}

}  // namespace

PackedGemm::PackedGemm(Runtime& runtime, GemmShape shape, int64_t rows)
    : packed_bytes_(packed_bytes(runtime.target(), packed(shape, rows))),
      scratch_bytes_(scratch_bytes(runtime.target(), packed(shape, rows))),
      gemm_(&prepare_gemm(runtime, packed(shape, rows))) {}

int64_t PackedGemm::workspace_bytes(const Target& target, GemmShape shape, int64_t rows) {
  return packed_bytes(target, packed(shape, rows)) + scratch_bytes(target, packed(shape, rows));
}

void PackedGemm::pack(const void* b, std::byte* workspace) {
  b_ = gemm_->pack(b, workspace);
  scratch_ = workspace + packed_bytes_;
}

void PackedGemm::run(const void* a, void* c) const { gemm_->run(a, b_, c, scratch_); }

}  // namespace tessera
