#pragma once

#include <string>
#include <vector>

namespace tessera {

/// The ends of an axis. `low` is less than `high`.
struct Range {
  double low = 0;
  double high = 1;
};

/// The marks of an axis and the label at each. The marks ascend and are within the axis's range, to
/// within a millionth of the distance between two marks.
struct Ticks {
  std::vector<double> values;
  std::vector<std::string> labels;
};

/// Returns multiples of a step, which is 1, 2 or 5 times a power of ten: the least such step that
/// cuts a range of that width into at most `count` parts. `whole` allows whole numbers only. All
/// labels but "0" have the same number of decimals and the same SI suffix (k, M, G, T, P, E) or
/// power of ten: "1.5k", "2.0e-4". The range must be wider than 1e-9 of its numbers, because the
/// labels could not tell closer numbers apart.
Ticks linear_ticks(const Range& range, int count, bool whole);

/// Returns ticks for a logarithmic axis, where `low` is above zero: about `count` powers of ten. If
/// the range holds fewer than three, adds their multiples by 2 and 5, or by 2 to 9. If that is
/// still too few, returns linear_ticks().
Ticks log_ticks(const Range& range, int count);

}  // namespace tessera
