#include "ops/moe/grouped_shape.h"

#include <fmt/format.h>

namespace tessera {

std::string describe(const GroupedShape& shape) {
  return fmt::format(
      "products of {} groups of up to {} rows in all, weights [{}, {}], {} into {}{}", shape.groups,
      shape.rows, shape.out, shape.in, dtype_name(shape.input), dtype_name(shape.output),
      shape.adds ? ", added" : "");
}

}  // namespace tessera
