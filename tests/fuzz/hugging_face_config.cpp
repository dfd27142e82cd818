#include "checkpoint/hugging_face/read_config.h"
#include "fuzz/fuzz.h"
#include "model/model_config.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error(
      [&] { validate(hugging_face::read_config(fuzz::text_of(data, size), "config.json").model); });
  return 0;
}
