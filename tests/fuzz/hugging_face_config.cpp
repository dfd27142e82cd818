#include "checkpoint/hugging_face/convert.h"
#include "checkpoint/hugging_face/read_config.h"
#include "checkpoint/hugging_face/weight_map.h"
#include "fuzz/fuzz.h"

using namespace tessera;

// What an import does before it looks at weights, for models small enough to be made many times.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hugging_face;
  constexpr int64_t kMostTensors = 2000;
  constexpr int64_t kMostLayers = 100;
  fuzz::expect_result_or_error([&] {
    const ReadConfig config = read_config(fuzz::text_of(data, size), "config.json");
    imported_config(config.model, Precision::bf16, "config.json");
    for (const ExpertNaming naming : {ExpertNaming::single, ExpertNaming::fused}) {
      const int64_t count = count_tensors(*config.architecture, config.model, naming);
      if (count > kMostTensors || config.model.layers > kMostLayers) continue;
      const WeightMap map = weight_map(*config.architecture, config.model, naming);
      TESSERA_CHECK(static_cast<int64_t>(map.tensors.size()) == count, "{} tensors, counted {}",
                    map.tensors.size(), count);
    }
  });
  return 0;
}
