#pragma once

#include <chrono>
#include <string_view>

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

}  // namespace tessera::testing
