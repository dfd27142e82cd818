#include <cmath>

#include "fuzz/fuzz.h"
#include "plan/account/step_account.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::expect_result_or_error([&] {
    const RunTrace run = read_trace(file.path());
    for (const RankTrace& trace : run.ranks) {
      const Ceilings ceilings{.gemm_flops = trace.step.origin.gemm_peak, .memory_bytes = 1e9};
      StepAccount account = account_for(
          trace, ceilings, [](const GemmShape& shape) { return 1e-12 * shape.flops(); });
      account.run = account_for_run(run);
      for (const RankNetwork& rank : account.run->network.ranks) {
        TESSERA_CHECK(rank.all.hidden + rank.all.exposed() == rank.all.total,
                      "each moment of a call is hidden or exposed");
      }
      TESSERA_CHECK(std::isfinite(account.useful_flops) && std::isfinite(account.idle_seconds) &&
                        std::isfinite(account.run->bubble.value_or(0)),
                    "the sums of a valid trace are finite");
      account_text(account);
      account_json(account);
    }
  });
  return 0;
}
