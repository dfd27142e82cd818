#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/processes.h"
#include "comm/tcp/first_process.h"
#include "comm/tcp/other_process.h"
#include "comm/tcp/tcp_address.h"
#include "comm/tcp/tcp_listener.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera::testing {

constexpr std::chrono::seconds kPatience{20};
constexpr std::string_view kToken = "the secret of the tests";

/// Where ranks meet: a free port.
inline TcpAddress free_address() {
  const TcpListener any({"127.0.0.1", 0});
  return {"127.0.0.1", any.port()};
}

/// Waits for a connection.
inline TcpSocket accept_one(TcpListener& listener) {
  for (;;) {
    if (auto socket = listener.accept()) return std::move(*socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Checks that a rank ends when all ranks have ended without an error.
inline void end_well(Processes& processes) {
  EXPECT_EQ(processes.report_end("", kPatience), Processes::Report::none);
  EXPECT_TRUE(processes.all_ended());
}

/// Runs body(processes) for each of so many ranks that meet by TCP, in threads of this process.
inline void run_by_tcp(int ranks, const std::function<void(Processes&)>& body) {
  const TcpAddress address = free_address();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string host = "host" + std::to_string(rank);
      std::unique_ptr<Processes> processes;
      if (rank == 0) {
        processes = std::make_unique<FirstProcess>(address, ranks, host, kToken, kPatience);
      } else {
        processes = std::make_unique<OtherProcess>(address, ranks, rank, host, kToken, kPatience);
      }
      body(*processes);
    });
  }
}

}  // namespace tessera::testing
