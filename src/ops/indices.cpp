#include "ops/indices.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

void require_indices(const Execution& execution, std::string_view what, const Tensor& indices,
                     int64_t least, int64_t extent) {
  const auto values = indices.values<int32_t>();
  const auto wrong =
      std::ranges::find_if(values, [=](int32_t value) { return value < least || value >= extent; });
  if (wrong == values.end()) return;
  throw Error(
      "{}: the {} of token {} is {}; expected {} to {}. The tokens must be those of the model's "
      "vocabulary",
      execution.name, what, wrong - values.begin(), *wrong, least, extent - 1);
}

}  // namespace tessera
