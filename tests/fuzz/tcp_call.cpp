#include "comm/tcp/tcp_call.h"

#include <vector>

#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error([&] {
    const std::vector<int> ranks{4, 2, 7};
    WireReader request(std::as_bytes(std::span(data, size)));
    const TcpCall call = read_call(request, ranks, 1);
    TESSERA_CHECK(call.given_bytes >= 0 && call.result_bytes >= 0 && call.timeout.count() >= 0,
                  "sizes and times are counts");
  });
  fuzz::expect_result_or_error([&] {
    const std::vector<int> ranks{4, 2, 7};
    WireReader request(std::as_bytes(std::span(data, size)));
    const TcpMessage message = read_post(request, ranks, 1);
    TESSERA_CHECK(message.bytes() >= 0 && message.peer >= 0 && message.peer < 3,
                  "sizes are counts, and peers are ranks of the group");
  });
  fuzz::expect_result_or_error([&] {
    WireReader request(std::as_bytes(std::span(data, size)));
    TESSERA_CHECK(read_wait(request).timeout.count() >= 0, "times are counts");
  });
  return 0;
}
