#pragma once

#include <chrono>
#include <string_view>

#include <gtest/gtest.h>

#include "comm/processes.h"
#include "comm/tcp/tcp_address.h"
#include "comm/tcp/tcp_listener.h"

namespace tessera::testing {

constexpr std::chrono::seconds kPatience{20};
constexpr std::string_view kToken = "the secret of the tests";

/// Where ranks meet: a free port.
inline TcpAddress free_address() {
  const TcpListener any({"127.0.0.1", 0});
  return {"127.0.0.1", any.port()};
}

/// Checks that a rank ends when all ranks have ended without an error.
inline void end_well(Processes& processes) {
  EXPECT_EQ(processes.report_end("", kPatience), Processes::Report::none);
  EXPECT_TRUE(processes.all_ended());
}

}  // namespace tessera::testing
