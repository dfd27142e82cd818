#include "ops/moe/row_bound.h"

#include "base/words.h"
#include "ops/support.h"

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

void refuse_row_bound_on_device(const Runtime& runtime, std::string_view operation,
                                const RowBound& bound, int64_t possible_rows) {
  if (runtime.accelerator() == nullptr || bound.rows >= possible_rows) return;
  throw Error(
      "{} on {}: {} rows are reserved for a rank's experts, {} can come, and a device does not "
      "count them; set {} to 0 for as many as can come, or run.device = \"cpu\"",
      operation, word(runtime.target().device), bound.rows, possible_rows, bound.key);
}

void refuse_sent_rows_on_device(const Runtime& runtime, std::string_view operation) {
  if (runtime.accelerator() == nullptr) return;
  throw Error(
      "{} on {}: devices do not send rows to the ranks of their experts yet; set "
      "parallel.expert_exchange = \"all_gather\" or run.device = \"cpu\"",
      operation, word(runtime.target().device));
}

}  // namespace tessera
