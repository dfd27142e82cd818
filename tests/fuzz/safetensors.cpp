#include "checkpoint/safetensors_reader.h"
#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::expect_result_or_error([&] {
    const SafetensorsReader reader(file.path());
    volatile unsigned sum = 0;
    int64_t covered = reader.header_bytes();
    for (const SafetensorsEntry& entry : reader.entries()) {
      const auto bytes = reader.read(entry);
      for (const std::byte byte : bytes) sum += std::to_integer<unsigned>(byte);  // reads them all
      covered += entry.bytes();
      TESSERA_CHECK(reader.find(entry.name) == &entry, "a tensor is not found by its name");
    }
    TESSERA_CHECK(covered == static_cast<int64_t>(size), "tensors cover {} of {} bytes", covered,
                  size);
  });
  return 0;
}
