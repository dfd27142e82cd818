#include "fuzz/fuzz.h"
#include "pipeline/clock.h"
#include "pipeline/place_messages.h"
#include "pipeline/schedule_file.h"
#include "pipeline/validate.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error([&] {
    const ActionLists lists = parse_schedule(fuzz::text_of(data, size), "input");
    // A short text may name a million micro-batches, all of which would be missing.
    if (lists.micro_batches > 64 || lists.placement.chunks() > 64) return;
    TESSERA_CHECK(parse_schedule(schedule_text(lists), "input") == lists, "read otherwise");
    const PipelineSchedule schedule = place_messages(lists);
    if (validate(schedule).empty()) measure(schedule, {});
  });
  return 0;
}
