#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/connect_devices.h"
#include "comm/in_process/world.h"
#include "comm/nccl/nccl_library_cuda.h"
#include "comm/nccl/nccl_links.h"
#include "comm/ranks_and_values.h"
#include "device/emulated_accelerator.h"

namespace tessera {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Why NCCL cannot be loaded here; none if it can.
std::optional<std::string> missing() {
  try {
    const NcclLibrary nccl;
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

/// Why there are not so many GPUs here; none if there are.
std::optional<std::string> missing_gpus(int count) {
  try {
    for (int rank = 0; rank < count; ++rank) {
      open_accelerator(Device::cuda, "--device", {.index = rank, .ranks = count});
    }
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

/// Joins so many ranks by NCCL, each on a GPU of its own, who then sum known numbers.
void sum_on_gpus(int ranks) {
  World world(ranks, std::chrono::seconds(120));
  run_ranks(world, [&](int rank) {
    const auto accelerator =
        open_accelerator(Device::cuda, "--device", {.index = rank, .ranks = ranks});
    Communicator group = world.group(rank, first_ranks(ranks));
    connect_devices(
        group, [&] { return world.group(rank, first_ranks(ranks), "another"); }, *accelerator,
        std::chrono::seconds(60));
    require_right_sums(group, *accelerator);
  });
}

TEST(Nccl, VersionsAreWrittenAsTheyAreRead) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(NCCL_VERSION(2, 26, 2)), "2.26.2");
}

TEST(Nccl, ThatIsMissingIsNamedWithWhatItIsFor) {
  const auto why = missing();
  if (!why) GTEST_SKIP() << "NCCL is here";
  EXPECT_THAT(*why, HasSubstr("libnccl.so.2"));
  EXPECT_THAT(*why, HasSubstr("ranks on several devices"));
}

TEST(Nccl, HasTheFunctionsThatLinksTake) {
  if (const auto why = missing()) GTEST_SKIP() << *why;
  const NcclLibrary nccl;
  EXPECT_GE(nccl.version, NCCL_VERSION(2, 26, 2));
  EXPECT_THAT(nccl.failure(ncclInvalidArgument, nullptr), HasSubstr("invalid argument"));
}

/// Both ranks get an error, and neither waits for the other: without a GPU NCCL cannot join them.
TEST(Nccl, ThatCannotJoinTheRanksEndsThemWithItsReason) {
  if (const auto why = missing()) GTEST_SKIP() << *why;
  if (!missing_gpus(1)) GTEST_SKIP() << "there is a GPU";
  World world(2);
  std::vector<std::string> errors(2);
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, first_ranks(2));
    const auto accelerator = open_emulated();
    try {
      nccl_links(group, *accelerator, std::chrono::seconds(20));
    } catch (const Error& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("NCCL"));
    EXPECT_THAT(error, AnyOf(HasSubstr("cannot join the ranks of the group"),
                             HasSubstr("cannot make an address for the ranks")));
  }
}

TEST(Nccl, OneRankSumsOnItsGpu) {
  if (const auto why = missing_gpus(1)) GTEST_SKIP() << *why;
  EXPECT_NO_THROW(sum_on_gpus(1));
}

/// Two ranks post messages to each other, first all that they send, and wait in the other order.
TEST(Nccl, TwoRanksPostMessagesBetweenTheirGpus) {
  if (const auto why = missing_gpus(2)) GTEST_SKIP() << *why;
  World world(2, std::chrono::seconds(120));
  std::vector<std::string> received(2);
  run_ranks(world, [&](int rank) {
    const auto accelerator =
        open_accelerator(Device::cuda, "--device", {.index = rank, .ranks = 2});
    Communicator group = world.group(rank, first_ranks(2));
    const int peer = 1 - rank;
    connect_posts(
        group, std::span(&peer, 1), [&] { return world.group(rank, first_ranks(2), "another"); },
        *accelerator, std::chrono::seconds(60));
    constexpr int64_t kElements = int64_t{1} << 22;
    const auto memory = accelerator->allocate(4 * kElements * 4);
    const auto tensor = [&](int64_t index) {
      return Tensor::wrap(static_cast<std::byte*>(memory->address()) + index * kElements * 4,
                          {kElements}, DType::f32, accelerator.get());
    };
    for (const int i : {0, 1}) {
      const Tensor own = random_tensor({kElements}, DType::f32, 2 * rank + i);
      upload({own.raw(), static_cast<size_t>(own.bytes())}, tensor(i));
    }
    const auto stream = accelerator->make_stream();
    const DeviceCall call{.stream = stream.get()};
    std::vector<PostedMessage> messages;
    for (const int i : {0, 1}) messages.push_back(group.post_send("out", peer, tensor(i), call));
    for (const int i : {2, 3}) messages.push_back(group.post_receive("out", peer, tensor(i), call));
    while (!messages.empty()) {
      group.wait(messages.back(), call);
      messages.pop_back();
    }
    stream->synchronize();
    received[static_cast<size_t>(rank)] =
        bytes_of(on_host(tensor(2))) + bytes_of(on_host(tensor(3)));
  });
  for (const int rank : {0, 1}) {
    std::string expected;
    for (const int i : {0, 1}) {
      expected += bytes_of(random_tensor({int64_t{1} << 22}, DType::f32, 2 * (1 - rank) + i));
    }
    EXPECT_TRUE(received[static_cast<size_t>(rank)] == expected);
  }
}

TEST(Nccl, TwoRanksSumOnTheirGpus) {
  if (const auto why = missing_gpus(2)) GTEST_SKIP() << *why;
  EXPECT_NO_THROW(sum_on_gpus(2));
}

}  // namespace
}  // namespace tessera
