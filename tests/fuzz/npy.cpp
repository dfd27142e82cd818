#include "data/npy.h"

#include <functional>
#include <numeric>

#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::expect_result_or_error([&] {
    const NpyHeader header = parse_npy_header(bytes, static_cast<int64_t>(size), "fuzz.npy");
    const int64_t elements =
        std::accumulate(header.shape.begin(), header.shape.end(), int64_t{1}, std::multiplies<>());
    TESSERA_CHECK(
        header.data_offset + elements * dtype_size(header.dtype) == static_cast<int64_t>(size),
        "the data of a valid file fills it");
  });
  return 0;
}
