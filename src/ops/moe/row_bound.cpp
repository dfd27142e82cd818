#include "ops/moe/row_bound.h"

#include <vector>

#include "base/words.h"
#include "ops/support.h"
#include "program/labels.h"
#include "program/matrix_products.h"

namespace tessera {

void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows) {
  if (rows <= bound.rows) return;
  throw Error(
      "{}: rank {} got {} rows for its experts, {:.2f} times the {} of an even load; {} are "
      "reserved; give {} a larger value, or 0 for as many rows as can come",
      execution.name, execution.runtime.groups().rank(), rows,
      static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(bound.balanced, 1)),
      bound.balanced, bound.rows, bound.key);
}

int64_t expected_rows(const Builder& builder, Value value) {
  const ValueInfo& info = builder.program().info(value);
  return info.rows ? info.rows->expected : info.spec.shape[0];
}

double grouped_flops(const Operation& operation, std::span<const Spec> inputs, int64_t rows) {
  std::vector<Shape> operands;
  for (const Spec& input : inputs) {
    const Shape& shape = input.shape;
    operands.push_back(shape.rank() == 2 ? shape.with_dim(0, rows) : shape);
  }
  return matrix_product_flops(parse_labels(operation.labels(inputs)), operands);
}

void refuse_experts_on_device(const Runtime& runtime, std::string_view operation) {
  if (runtime.accelerator() == nullptr) return;
  throw Error(
      "{} on {}: experts over several ranks run on the processor only; set run.device = "
      "\"cpu\" or parallel.expert = 1",
      operation, word(runtime.target().device));
}

}  // namespace tessera
