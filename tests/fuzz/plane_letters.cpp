#include "comm/tcp/plane_letters.h"

#include <algorithm>

#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kRanks = 8;
  const auto letter = [&] { return WireReader(std::as_bytes(std::span(data, size))); };
  fuzz::expect_result_or_error([&] {
    WireReader reader = letter();
    const PlaneWait wait = take_wait_of(reader, 2, kRanks);
    const auto is_rank = [&](int rank) { return rank >= 0 && rank < kRanks; };
    TESSERA_CHECK(std::ranges::all_of(wait.ranks, is_rank) &&
                      std::ranges::all_of(wait.needs, is_rank) && wait.timeout.count() >= 0 &&
                      wait.remaining.count() >= 0,
                  "ranks are of the run, and times are counts");
  });
  fuzz::expect_result_or_error([&] {
    WireReader reader = letter();
    for (const LastCall& call : take_calls(reader)) {
      TESSERA_CHECK(call.state <= CallState::failed, "a call has a state");
    }
  });
  fuzz::expect_result_or_error([&] {
    WireReader reader = letter();
    const int peer = take_withdrawal(reader, kRanks).peer;
    TESSERA_CHECK(peer >= 0 && peer < kRanks, "the other rank is one of the run");
  });
  return 0;
}
