#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/ranks_and_values.h"

namespace tessera {

/// What one rank of a group computes, as bytes. It is the same function of its position for a rank
/// that is a process and for one that is a thread.
using OneRank = std::function<std::string(Communicator&)>;

/// Runs it in this process, with a thread for each rank, and on the processes; the bytes are the
/// same, and so is what each rank received.
inline void expect_bits_of_threads(Communicator& processes, const OneRank& work) {
  std::vector<std::string> by_threads(static_cast<size_t>(processes.size()));
  std::vector<int64_t> received(by_threads.size());
  const auto all_received = [](const Communicator& group) {
    int64_t bytes = 0;
    for (size_t kind = 0; kind < kWordsOf<Collective>.size(); ++kind) {
      bytes += group.traffic(static_cast<Collective>(kind)).received_bytes;
    }
    return bytes;
  };
  run_group(processes.size(), [&](Communicator& group) {
    const auto own = static_cast<size_t>(group.position());
    by_threads[own] = work(group);
    received[own] = all_received(group);
  });
  const int64_t before = all_received(processes);
  const std::string result = work(processes);
  const auto own = static_cast<size_t>(processes.position());
  EXPECT_TRUE(result == by_threads[own]) << "rank " << own << " has other bits";
  EXPECT_EQ(all_received(processes) - before, received[own]);
}

}  // namespace tessera
