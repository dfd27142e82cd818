#include "device/emulated_accelerator.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
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
  auto graph = stream->end_capture();
  stream->synchronize();
  EXPECT_EQ(sum, 0);
  stream->launch(*graph);
  stream->launch(*graph);
  graph.reset();
  stream->synchronize();
  EXPECT_EQ(sum, 6);
}

TEST(EmulatedDevice, AGraphTakesTwoStreamsIn) {
  const auto accelerator = open_emulated();
  const auto first = accelerator->make_stream(), second = accelerator->make_stream();
  const auto begun = accelerator->make_event(), done = accelerator->make_event();
  int value = 1;
  first->begin_capture();
  first->enqueue([&] { value += 1; });
  first->record(*begun);
  second->wait(*begun);
  second->enqueue([&] { value *= 10; });
  second->record(*done);
  first->wait(*done);
  first->enqueue([&] { value += 3; });
  const auto graph = first->end_capture();
  accelerator->synchronize();
  EXPECT_EQ(value, 1) << "it was only captured";
  first->launch(*graph);
  first->launch(*graph);
  first->synchronize();
  EXPECT_EQ(value, 243);
  second->enqueue([&] { value = 0; });  // out of the capture again
  second->synchronize();
  EXPECT_EQ(value, 0);
}

TEST(EmulatedDevice, ACaptureWaitsForAllItsStreams) {
  const auto accelerator = open_emulated();
  const auto first = accelerator->make_stream(), second = accelerator->make_stream();
  const auto begun = accelerator->make_event(), done = accelerator->make_event();
  for (const bool after : {false, true}) {
    first->begin_capture();
    first->record(*begun);
    second->wait(*begun);
    second->record(*done);
    if (after) {
      first->wait(*done);
      second->enqueue([] {});
    }
    EXPECT_THAT(error_of([&] { first->end_capture(); }), HasSubstr("did not wait for 1"));
  }
  first->begin_capture();
  EXPECT_NO_THROW(first->end_capture()) << "the one before is over";
}

TEST(EmulatedDevice, WhatACaptureDoesNotAllowMakesItInvalid) {
  const auto accelerator = open_emulated();
  const auto stream = accelerator->make_stream(), other = accelerator->make_stream();
  const auto outside = accelerator->make_event(), inside = accelerator->make_event();
  other->record(*outside);
  const std::vector<std::function<void()>> calls{
      [&] { accelerator->allocate(8); },   [&] { accelerator->allocate_host(8); },
      [&] { accelerator->synchronize(); }, [&] { stream->wait(*outside); },
      [&] { (void)inside->reached(); },    [&] { inside->synchronize(); },
      [&] { stream->synchronize(); }};
  for (const auto& call : calls) {
    stream->begin_capture();
    stream->record(*inside);
    EXPECT_THAT(error_of(call), HasSubstr("does not allow"));
    EXPECT_THAT(error_of([&] { stream->end_capture(); }), HasSubstr("is invalid"));
    stream->begin_capture();
    stream->record(*inside);
    EXPECT_THAT(error_of(call), HasSubstr("does not allow"));
    stream->abandon_capture();
    EXPECT_NO_THROW(accelerator->synchronize());
  }
  EXPECT_THAT(error_of([&] { other->wait(*inside); }), HasSubstr("does not allow"));
  stream->begin_capture();
  std::thread([&] { accelerator->allocate(8); }).join();
  EXPECT_NO_THROW(stream->end_capture()) << "another thread may allocate";
}

TEST(EmulatedDevice, WorkThatWaitsForAFailureFailsToo) {
  const auto accelerator = open_emulated();
  const auto first = accelerator->make_stream(), second = accelerator->make_stream();
  const auto third = accelerator->make_stream();
  const auto before = accelerator->make_event(), event = accelerator->make_event();
  std::atomic<int> later = 0;
  first->record(*before);
  third->wait(*before);
  first->enqueue([] { throw Error("no such expert"); });
  first->record(*event);
  second->wait(*event);
  second->enqueue([&] { ++later; });
  EXPECT_THAT(error_of([&] { second->synchronize(); }), HasSubstr("no such expert"));
  EXPECT_EQ(later, 0);
  third->enqueue([&] { ++later; });
  EXPECT_NO_THROW(third->synchronize()) << "it waited for what came before";
  EXPECT_EQ(later, 1);
}

TEST(EmulatedDevice, TheHostWaitsForAllStreamsEvenIfOneFails) {
  const auto accelerator = open_emulated();
  const auto first = accelerator->make_stream(), second = accelerator->make_stream();
  std::atomic<bool> done = false;
  first->enqueue([] { throw Error("no such expert"); });
  second->enqueue([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    done = true;
  });
  EXPECT_THAT(error_of([&] { accelerator->synchronize(); }), HasSubstr("no such expert"));
  EXPECT_TRUE(done);
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
}

TEST(OpenAccelerator, AnErrorNamesWhatChoseTheDevice) {
  EXPECT_THAT(error_of([] { open_accelerator(Device::hip); }), EndsWith("choose another --device"));
  EXPECT_THAT(error_of([] { open_accelerator(Device::hip, "run.device"); }),
              EndsWith("choose another run.device"));
  EXPECT_THROW(open_emulated(16), InternalError);
}

}  // namespace
}  // namespace tessera
