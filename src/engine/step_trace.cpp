#include "engine/step_trace.h"

#include <algorithm>

namespace tessera {

int StepTrace::index_of(const GemmShape& product) {
  const auto found = std::ranges::find(products, product);
  if (found != products.end()) return static_cast<int>(found - products.begin());
  products.push_back(product);
  return static_cast<int>(products.size()) - 1;
}

}  // namespace tessera
