#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// The treatment of matrices that are split over ranks.
enum class NewtonSchulzPieces {
  refused,  ///< each matrix must be whole on the rank
  blocks,   ///< each rank's piece is treated as a matrix of its own, which is another algorithm
};

/// Returns the FLOPs of a step on a matrix [rows, columns]. Symmetric products count half.
double newton_schulz_step_flops(int64_t rows, int64_t columns);

/// Orthogonalises matrices [rows, columns], or [experts, rows, columns] with one matrix of each
/// expert, approximately (Keller Jordan's Muon; Moonlight): for X = U Σ Vᵀ it returns about U Vᵀ.
///   X = X / |X|, transposed if it has more rows than columns, then `steps` times
///   A = X Xᵀ, X = a X + (b A + c A²) X (muon_kernels.h).
/// A matrix of zeros stays zero. The published formula divides by |X| + 1e-7, so small matrices
/// give small results. Here the result does not depend on the scale of X, in bf16 and f32 for all
/// finite numbers, in f64 for norms from 1e-140 to 1e150. Denormal numbers count as zeros
/// (flush_denormals()).
///
/// Products are in the matrices' type, bf16, f32 or f64, with sums in f32 (f64 for f64). On the
/// processor, large A and A² are computed as symmetric matrices (SymmetricProduct), and a X by
/// adding a to the diagonal of b A + c A².
std::vector<Value> newton_schulz(Builder& builder, std::span<const Value> matrices, int64_t steps,
                                 NewtonSchulzPieces pieces = NewtonSchulzPieces::refused);

}  // namespace tessera
