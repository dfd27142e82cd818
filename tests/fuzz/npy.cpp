#include "data/npy.h"

#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::expect_result_or_error([&] {
    const NpyHeader header = parse_npy_header(bytes, static_cast<int64_t>(size), "fuzz.npy");
    TESSERA_CHECK(header.data_offset + header.elements() * dtype_size(header.dtype) ==
                      static_cast<int64_t>(size),
                  "the data of a valid file fills it");
  });
  return 0;
}
