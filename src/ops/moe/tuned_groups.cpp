#include "ops/moe/tuned_groups.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/quantile.h"

namespace tessera {

std::string describe(const GroupedShape& shape) {
  return fmt::format(
      "products of {} groups of up to {} rows in all, weights [{}, {}], {} into {}{}", shape.groups,
      shape.rows, shape.out, shape.in, dtype_name(shape.input), dtype_name(shape.output),
      shape.adds ? ", added" : "");
}

const TunedGrouped* TunedGroups::find(const GroupedShape& shape) const {
  const auto found = std::ranges::find(products, shape, &TunedGrouped::shape);
  return found == products.end() ? nullptr : &*found;
}

TunedGrouped faster_library(const GroupedShape& shape, const std::vector<double>& cutlass_seconds,
                            const std::vector<double>& cublaslt_seconds) {
  TESSERA_CHECK(!cutlass_seconds.empty() || !cublaslt_seconds.empty(), "no library was measured");
  const auto median = [](const std::vector<double>& seconds) {
    return seconds.empty() ? 0.0 : quantile(seconds, 0.5);
  };
  TunedGrouped result{.shape = shape,
                      .library = GroupedLibrary::cutlass,
                      .cutlass_seconds = median(cutlass_seconds),
                      .cublaslt_seconds = median(cublaslt_seconds)};
  const bool has_cublaslt = !cublaslt_seconds.empty();
  if (has_cublaslt &&
      (cutlass_seconds.empty() || result.cublaslt_seconds < result.cutlass_seconds)) {
    result.library = GroupedLibrary::cublaslt;
  }
  return result;
}

}  // namespace tessera
