#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Where an axis begins and ends; `low` is less than `high`.
struct Range {
  double low = 0;
  double high = 1;
};

/// The marks of an axis, growing and within its range (up to a millionth of the way between two),
/// and what stands at each.
struct Ticks {
  std::vector<double> values;
  std::vector<std::string> labels;
};

/// Multiples of 1, 2 or 5 times a power of ten that cut the range into at most `count` parts,
/// within a factor of 2.5 of it; `whole` allows whole numbers only. All labels have the same
/// decimals and the same SI suffix (k, M, G, T, P, E) or power of ten: "1.5k", "2.0e-4". Ranges
/// narrower than a 1e-9 part of their numbers have no ticks worth printing and must not be asked
/// for.
Ticks linear_ticks(const Range& range, int count, bool whole);

/// For a logarithmic axis, where `low` is above zero: powers of ten, about `count` of them; where
/// the range holds fewer than three, also their multiples by 2 and 5, or by 2 to 9; those of
/// linear_ticks() where that is still too few.
Ticks log_ticks(const Range& range, int count);

}  // namespace tessera
