#include "base/file.h"
#include "checkpoint/hugging_face/weight_folder.h"
#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error([&] {
    const auto index =
        hugging_face::read_weight_index(fuzz::text_of(data, size), "model.safetensors.index.json");
    for (const auto& [tensor, file] : index.file_of) {
      TESSERA_CHECK(is_plain_name(file) && index.files.contains(file), "the file of {} is {}",
                    tensor, file);
    }
  });
  return 0;
}
