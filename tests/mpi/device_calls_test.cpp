// Calls on devices of processes, which need no meeting on the processor if they are not compared.
#include <cstdlib>
#include <span>

#include <gtest/gtest.h>

#include "comm/emulated_links.h"
#include "comm/rank_device.h"
#include "mpi/joined.h"

namespace tessera {
namespace {

/// Rank 0 gives its device a sum, and then tells rank 1 that it has. Only then does rank 1 give
/// its own one. If the ranks met to give it, both would wait for ever.
TEST(DeviceCallsOfProcesses, DoNotMeetOnTheProcessorIfTheyAreNotCompared) {
  if (std::getenv("TESSERA_ADDRESS") != nullptr) GTEST_SKIP() << "over TCP all calls are compared";
  RankDevice device(32);
  Communicator group = new_group();
  Communicator host = new_group();
  group.use_devices(emulated_links(new_group()));
  group.compare_calls(false);
  const Tensor one({4}, DType::i32);
  for (int64_t i = 0; i < 4; ++i) set(one, i, group.position() + 1);
  const Tensor sum = device.copy(one);
  const Tensor passed = device.copy(Tensor({4}, DType::i32));
  const Tensor signal({1}, DType::u8);
  const int ranks = group.size();
  const int before = (group.position() + ranks - 1) % ranks;
  const int next = (group.position() + 1) % ranks;
  if (group.position() > 0) host.receive("given", before, signal);
  group.all_reduce("sum", sum, sum, Reduction::sum,
                   device.call(all_reduce_workspace(4, DType::i32, ranks)));
  const Message out{.peer = next, .tensor = sum}, in{.peer = before, .tensor = passed};
  group.exchange("ring", std::span(&out, 1), std::span(&in, 1), device.call(0));
  if (group.position() + 1 < ranks) host.send("given", next, signal);
  device.stream().synchronize();
  EXPECT_EQ(get(on_host(sum), 3), ranks * (ranks + 1) / 2);
  EXPECT_EQ(get(on_host(passed), 0), ranks * (ranks + 1) / 2);
}

}  // namespace
}  // namespace tessera
