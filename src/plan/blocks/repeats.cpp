#include "plan/blocks/repeats.h"

#include "base/error.h"
#include "base/interrupt.h"

namespace tessera {

void Repeats::each(const std::function<void(bool)>& run) const {
  if (measured < 1 || warmup < 0) {
    throw Error("{} measured runs after {} of warm-up; give at least 1 and 0", measured, warmup);
  }
  for (int64_t i = 0; i < warmup; ++i) {
    require_no_interrupt();
    run(false);
  }
  for (int64_t i = 0; i < measured; ++i) {
    require_no_interrupt();
    if (before && !before(i)) {
      if (i == 0) throw Error("no run was measured: the first turn never came");
      break;
    }
    run(true);
  }
  require_no_interrupt();
}

}  // namespace tessera
