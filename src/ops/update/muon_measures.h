#pragma once

#include <cstdint>
#include <span>

#include "ops/update/newton_schulz.h"
#include "program/builder.h"

namespace tessera {

/// An orthogonalised update and the factor on it.
struct MeasuredUpdate {
  Value update;
  double factor = 1;  ///< muon_factor()
};

/// The sums that muon_measures() returns, in this order.
struct MuonMeasures {
  static constexpr int kSums = 4;
  double squares = 0;     ///< the sum of the squares of the elements of factor · update
  double elements = 0;    ///< the number of elements of all updates
  double deviations = 0;  ///< |(U Uᵀ − I) v|², of a tall U |(Uᵀ U − I) v|²
  double dims = 0;        ///< |v|²

  /// Returns the root of the mean square of factor · update. NaN without elements, as deviation().
  double rms() const;
  /// Returns an estimate of |U Uᵀ − I| / √n, the root of the mean of (σ² − 1)² over all singular
  /// values σ: 0 if all updates are orthogonal.
  double deviation() const;
};

/// Returns measures of how well Muon works, summed over all updates U: f64 [4], the members of
/// MuonMeasures. An update is a matrix, or has one matrix of each expert. `pieces` says how split
/// matrices are treated, as for newton_schulz().
///
/// The distance of U Uᵀ (or Uᵀ U, whichever is smaller, [n, n]) from I is taken along one vector v
/// of ones with the signs of muon_probe_sign(). Over random signs, the mean of |(U Uᵀ − I) v|² is
/// the square of the Frobenius norm of U Uᵀ − I. So two products with a vector replace one with a
/// matrix. The signs are the same in each step.
Value muon_measures(Builder& builder, std::span<const MeasuredUpdate> updates,
                    NewtonSchulzPieces pieces = NewtonSchulzPieces::refused);

}  // namespace tessera
