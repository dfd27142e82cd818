#include "device/emulated_accelerator.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int> read_integers(Accelerator& accelerator, const DeviceMemory& memory, size_t count) {
  std::vector<int> values(count);
  accelerator.readback(memory.address(), std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(EmulatedDevice, MemoryBeginsAsZerosAndIsReachedByCopiesOnly) {
  const auto accelerator = open_emulated();
  const auto memory = accelerator->allocate(64);
  EXPECT_EQ(read_integers(*accelerator, *memory, 16), std::vector<int>(16, 0));
  const std::vector<int> values{3, 1, 4, 1};
  accelerator->upload(std::as_bytes(std::span(values)), memory->address());
  EXPECT_EQ(read_integers(*accelerator, *memory, 4), values);
  auto* const first = static_cast<volatile int*>(memory->address());
  EXPECT_DEATH({ [[maybe_unused]] const int value = *first; }, "");
  EXPECT_DEATH({ *first = 1; }, "");
}

TEST(EmulatedDevice, GivesNoMoreMemoryThanItHas) {
  const auto accelerator = open_emulated(32, {}, 1000);
  EXPECT_EQ(accelerator->free_bytes(), 1000);
  auto first = accelerator->allocate(700);
  EXPECT_EQ(accelerator->free_bytes(), 300);
  EXPECT_THAT(error_of([&] { accelerator->allocate(301); }),
              AllOf(HasSubstr("300 B of memory free"), HasSubstr("301 B more")));
  EXPECT_EQ(accelerator->free_bytes(), 300);
  accelerator->allocate_host(5000);  // the host's own
  first.reset();
  EXPECT_EQ(accelerator->free_bytes(), 1000);
  accelerator->allocate(1000);
}

TEST(EmulatedDevice, StreamsDoTheirWorkInOrderWhileTheHostGoesOn) {
  const auto accelerator = open_emulated();
  const auto stream = accelerator->make_stream();
  std::atomic<bool> go = false;
  std::vector<int> done;
  stream->enqueue([&] {
    while (!go) std::this_thread::yield();
  });
  for (int i = 0; i < 100; ++i) stream->enqueue([&done, i] { done.push_back(i); });
  EXPECT_TRUE(done.empty());
  go = true;
  stream->synchronize();
  ASSERT_EQ(done.size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

TEST(EmulatedDevice, CopiesThroughPinnedMemory) {
  const auto accelerator = open_emulated();
  const auto stream = accelerator->make_stream();
  const auto memory = accelerator->allocate(12);
  const auto host = accelerator->allocate_host(12);
  auto* const values = static_cast<int*>(host->address());
  for (int i = 0; i < 3; ++i) values[i] = i + 5;
  stream->copy(memory->address(), values, 12);
  stream->synchronize();
  EXPECT_EQ(read_integers(*accelerator, *memory, 3), (std::vector<int>{5, 6, 7}));
  stream->fill_zero(memory->address(), 8);
  stream->copy(values, memory->address(), 12);
  stream->synchronize();
  EXPECT_EQ((std::vector<int>{values[0], values[1], values[2]}), (std::vector<int>{0, 0, 7}));
}

TEST(EmulatedDevice, EventsOrderStreamsAndTimeThem) {
  const auto accelerator = open_emulated();
  const auto first = accelerator->make_stream(), second = accelerator->make_stream();
  const auto begin = accelerator->make_event(), end = accelerator->make_event();
  EXPECT_TRUE(begin->reached()) << "nothing was recorded";
  std::atomic<bool> go = false;
  std::atomic<int> value = 0;
  first->record(*begin);
  first->enqueue([&] {
    while (!go) std::this_thread::yield();
    value = 1;
  });
  first->record(*end);
  second->wait(*end);
  int seen = -1;
  second->enqueue([&] { seen = value; });
  begin->synchronize();
  EXPECT_FALSE(end->reached());
  go = true;
  second->synchronize();
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(end->reached());
  EXPECT_GE(end->seconds_since(*begin), 0);
}

TEST(EmulatedDevice, AnEventThatIsRecordedAnewHoldsBackOnlyThoseThatWaitLater) {
  const auto accelerator = open_emulated();
  const auto first = accelerator->make_stream(), second = accelerator->make_stream();
  const auto event = accelerator->make_event();
  std::atomic<bool> go = false;
  first->record(*event);
  second->wait(*event);
  first->enqueue([&] {
    while (!go) std::this_thread::yield();
  });
  first->record(*event);
  second->synchronize();
  EXPECT_FALSE(event->reached());
  go = true;
  event->synchronize();
  EXPECT_TRUE(event->reached());
}

TEST(EmulatedDevice, AGraphIsDoneEachTimeItIsLaunched) {
  const auto accelerator = open_emulated();
  const auto stream = accelerator->make_stream();
  int sum = 0;
  stream->begin_capture();
  stream->enqueue([&] { sum += 1; });
  stream->enqueue([&] { sum *= 2; });
  EXPECT_THROW(stream->synchronize(), InternalError);
  auto graph = stream->end_capture();
  stream->synchronize();
  EXPECT_EQ(sum, 0);
  stream->launch(*graph);
  stream->launch(*graph);
  graph.reset();
  stream->synchronize();
  EXPECT_EQ(sum, 6);
}

TEST(EmulatedDevice, WorkThatFailsEndsItsStreamAndTheHostLearnsIt) {
  const auto accelerator = open_emulated();
  const auto stream = accelerator->make_stream();
  const auto event = accelerator->make_event();
  int later = 0;
  stream->enqueue([] { throw Error("no such expert"); });
  stream->enqueue([&] { ++later; });
  stream->record(*event);
  EXPECT_THAT(error_of([&] { event->synchronize(); }), HasSubstr("no such expert"));
  EXPECT_THAT(error_of([&] { stream->synchronize(); }), HasSubstr("no such expert"));
  EXPECT_THAT(error_of([&] { accelerator->synchronize(); }), HasSubstr("no such expert"));
  EXPECT_EQ(later, 0);
}

TEST(EmulatedDevice, IsOpenedByItsNameAndOthersSayThatTheyAreMissing) {
  EXPECT_EQ(open_accelerator(Device::emulated)->device(), Device::emulated);
  EXPECT_THAT(error_of([] { open_accelerator(Device::hip); }), HasSubstr("\"hip\""));
  EXPECT_THROW(open_accelerator(Device::cpu), InternalError);
  EXPECT_THROW(open_emulated(16), InternalError);
}

}  // namespace
}  // namespace tessera
