#include "device/gpu_accelerator.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What the runtime below has been asked for, and what it is to answer.
struct FakeState {
  int devices = 1;
  int64_t memory = 1 << 20;
  int64_t used = 0;
  std::map<std::string, int> failures;  // code by call
  std::vector<std::string> calls;
  std::map<void*, size_t> blocks;
  int last_error = 0;
  int begun_captures = 0;
  int device = -1;  // in use
};
FakeState& state() {
  static FakeState only;
  return only;
}

/// Notes a call and answers it.
int answer(const std::string& call) {
  state().calls.push_back(call);
  const auto failure = state().failures.find(call);
  if (failure == state().failures.end()) return 0;
  state().last_error = failure->second;
  return failure->second;
}

/// A vendor's runtime without a device: its memory is the host's, and work is done at once.
struct FakeApi {
  static constexpr Device kDevice = Device::cuda;
  static constexpr const char* kVisibleDevices = "TESSERA_FAKE_DEVICES";
  static constexpr const char* kDeviceListCommand = "fake-smi";
  using Code = int;
  using Stream = int*;
  using Event = int*;
  using Graph = int*;
  using GraphExec = int*;
  struct Properties {
    char name[16];
    int warpSize;
    int multiProcessorCount;
    size_t totalGlobalMem;
  };
  static std::string architecture(const Properties&) { return "fake_1"; }
  struct Dim3 {
    Dim3(unsigned x_, unsigned y_, unsigned z_) : x(x_), y(y_), z(z_) {}
    unsigned x, y, z;
  };
  static constexpr int kSuccess = 0, kNotReady = 1, kNoDevice = 2, kOutOfMemory = 3;
  static constexpr unsigned kNonBlocking = 7;
  static constexpr int kCopyDefault = 4, kCaptureThreadLocal = 5, kSharedBytesAttribute = 6;

  static int count_devices(int* count) {
    *count = state().devices;
    return answer("count");
  }
  static int properties_of(Properties* properties, int) {
    *properties = {"Fake 9000", 32, 7, size_t{1} << 20};
    return answer("properties");
  }
  static int use_device(int device) {
    state().device = device;
    return answer("device");
  }
  static int wait_for_device() { return answer("wait"); }
  static int info(size_t* free, size_t* total) {
    *free = static_cast<size_t>(state().memory - state().used);
    *total = static_cast<size_t>(state().memory);
    return answer("info");
  }
  static int give(void** address, size_t bytes) {
    if (state().used + static_cast<int64_t>(bytes) > state().memory) {
      return state().last_error = kOutOfMemory;
    }
    *address = std::malloc(bytes);
    std::memset(*address, 0x5a, bytes);
    state().blocks[*address] = bytes;
    state().used += static_cast<int64_t>(bytes);
    return answer("allocate");
  }
  static int take(void* address) {
    state().used -= static_cast<int64_t>(state().blocks.at(address));
    state().blocks.erase(address);
    std::free(address);
    return answer("free");
  }
  static int give_host(void** address, size_t bytes, unsigned) { return give(address, bytes); }
  static int set(void* to, int value, size_t bytes) {
    std::memset(to, value, bytes);
    return answer("memset");
  }
  static int move(void* to, const void* from, size_t bytes, int) {
    std::memcpy(to, from, bytes);
    return answer("memcpy");
  }
  static int set_in(void* to, int value, size_t bytes, Stream) { return set(to, value, bytes); }
  static int move_in(void* to, const void* from, size_t bytes, int kind, Stream) {
    return move(to, from, bytes, kind);
  }
  static int priorities(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return answer("priorities");
  }
  static int make_stream(Stream* stream, unsigned flags, int priority) {
    *stream = new int(priority);
    EXPECT_EQ(flags, kNonBlocking);
    return answer("stream of priority " + std::to_string(priority));
  }
  static int end_stream(Stream stream) {
    delete stream;
    return answer("end of stream");
  }
  static int query_stream(Stream) { return answer("stream query"); }
  static int wait_for_stream(Stream) { return answer("stream wait"); }
  static int wait_for_event(Stream, Event, unsigned) { return answer("event wait"); }
  static int begin_capture(Stream, int mode) {
    EXPECT_EQ(mode, kCaptureThreadLocal);
    ++state().begun_captures;
    return answer("begin");
  }
  static int end_capture(Stream, Graph* graph) {
    --state().begun_captures;
    const int code = answer("end");
    *graph = code == 0 ? new int(0) : nullptr;
    return code;
  }
  static int make_event(Event* event, unsigned) {
    *event = new int(0);
    return answer("event");
  }
  static int end_event(Event event) {
    delete event;
    return answer("end of event");
  }
  static int record(Event, Stream) { return answer("record"); }
  static int query(Event) { return answer("query"); }
  static int wait_event(Event) { return answer("host event wait"); }
  static int elapsed(float* milliseconds, Event, Event) {
    *milliseconds = 1500;
    return answer("elapsed");
  }
  static int instantiate(GraphExec* executable, Graph, unsigned long long) {
    const int code = answer("instantiate");
    if (code == 0) *executable = new int(0);
    return code;
  }
  static int end_graph(Graph graph) {
    delete graph;
    return answer("end of graph");
  }
  static int launch_graph(GraphExec, Stream) { return answer("launch graph"); }
  static int attribute(const void*, int, int value) {
    return answer("shared bytes " + std::to_string(value));
  }
  static int launch(const void*, Dim3 blocks, Dim3 threads, void** arguments, size_t shared,
                    Stream) {
    state().calls.push_back(fmt::format("{}x{} blocks of {}x{}, {} shared, argument {}", blocks.x,
                                        blocks.y, threads.x, threads.y, shared,
                                        *static_cast<int*>(arguments[0])));
    return answer("launch");
  }

  static constexpr GpuCall get_device_count{"fakeGetDeviceCount", count_devices};
  static constexpr GpuCall get_properties{"fakeGetProperties", properties_of};
  static constexpr GpuCall set_device{"fakeSetDevice", use_device};
  static constexpr GpuCall device_synchronize{"fakeDeviceSynchronize", wait_for_device};
  static constexpr GpuCall memory_info{"fakeMemGetInfo", info};
  static constexpr GpuCall allocate{"fakeMalloc", give};
  static constexpr GpuCall free{"fakeFree", take};
  static constexpr GpuCall allocate_host{"fakeHostAlloc", give_host};
  static constexpr GpuCall free_host{"fakeFreeHost", take};
  static constexpr GpuCall memset{"fakeMemset", set};
  static constexpr GpuCall memcpy{"fakeMemcpy", move};
  static constexpr GpuCall memset_async{"fakeMemsetAsync", set_in};
  static constexpr GpuCall memcpy_async{"fakeMemcpyAsync", move_in};
  static constexpr GpuCall stream_priority_range{"fakePriorities", priorities};
  static constexpr GpuCall stream_create{"fakeStreamCreate", make_stream};
  static constexpr GpuCall stream_destroy{"fakeStreamDestroy", end_stream};
  static constexpr GpuCall stream_query{"fakeStreamQuery", query_stream};
  static constexpr GpuCall stream_synchronize{"fakeStreamSynchronize", wait_for_stream};
  static constexpr GpuCall stream_wait_event{"fakeStreamWaitEvent", wait_for_event};
  static constexpr GpuCall stream_begin_capture{"fakeBeginCapture", begin_capture};
  static constexpr GpuCall stream_end_capture{"fakeEndCapture", end_capture};
  static constexpr GpuCall event_create{"fakeEventCreate", make_event};
  static constexpr GpuCall event_destroy{"fakeEventDestroy", end_event};
  static constexpr GpuCall event_record{"fakeEventRecord", record};
  static constexpr GpuCall event_query{"fakeEventQuery", query};
  static constexpr GpuCall event_synchronize{"fakeEventSynchronize", wait_event};
  static constexpr GpuCall event_elapsed_time{"fakeEventElapsedTime", elapsed};
  static constexpr GpuCall graph_instantiate{"fakeGraphInstantiate", instantiate};
  static constexpr GpuCall graph_destroy{"fakeGraphDestroy", end_graph};
  static constexpr GpuCall graph_exec_destroy{"fakeGraphExecDestroy", end_graph};
  static constexpr GpuCall graph_launch{"fakeGraphLaunch", launch_graph};
  static constexpr GpuCall set_attribute{"fakeFuncSetAttribute", attribute};
  static constexpr GpuCall launch_kernel{"fakeLaunchKernel", launch};

  static int get_last_error() { return std::exchange(state().last_error, 0); }
  static const char* error_name(int code) { return code == 99 ? "fakeErrorIllegal" : "fakeError"; }
  static const char* error_text(int) { return "something happened"; }
  static const char* kernel_name(const void*, Stream) { return "some_kernel"; }
  static void check_driver() {}
  static void check_device(const Properties&) {}
};

class GpuAccelerator : public ::testing::Test {
 protected:
  GpuAccelerator() { state() = {}; }
  static std::unique_ptr<Accelerator> open() { return open_gpu<FakeApi>({}); }
  static void fail(const std::string& call, int code = 99) { state().failures[call] = code; }
};

TEST_F(GpuAccelerator, SaysWhyThereIsNoDevice) {
  state().devices = 0;
  EXPECT_THAT(error_of(open), AllOf(HasSubstr("no GPU"), HasSubstr("fake-smi"),
                                    HasSubstr("TESSERA_FAKE_DEVICES is not set")));
  state().devices = 1;
  fail("count", FakeApi::kNoDevice);
  EXPECT_THAT(error_of(open), HasSubstr("no GPU"));
  fail("count");
  EXPECT_THAT(error_of(open),
              HasSubstr("fakeGetDeviceCount failed on the device \"cuda\": fakeErrorIllegal (99): "
                        "something happened"));
  EXPECT_EQ(state().last_error, 0) << "the runtime still has the error";
}

TEST_F(GpuAccelerator, EachRankOfAMachineHasItsOwn) {
  const auto device_of_rank = [](int rank, int ranks, bool processes = false) {
    open_gpu<FakeApi>({.index = rank, .ranks = ranks, .processes = processes});
    return state().device;
  };
  state().devices = 4;
  EXPECT_EQ(device_of_rank(0, 4), 0);
  EXPECT_EQ(device_of_rank(3, 4), 3);
  EXPECT_THAT(error_of([&] { device_of_rank(0, 8); }),
              AllOf(HasSubstr("this machine has 8 ranks, and 4 GPUs can be used"),
                    HasSubstr("TESSERA_FAKE_DEVICES")));
  state().devices = 1;
  EXPECT_EQ(device_of_rank(3, 4, /*processes=*/true), 0) << "each process is shown its own";
  EXPECT_THAT(error_of([&] { device_of_rank(1, 2); }), HasSubstr("has 2 ranks, and 1 GPUs"));
}

TEST_F(GpuAccelerator, AWaitThatCannotEndIsEndedByALook) {
  const auto accelerator = open();
  const auto stream = accelerator->make_stream();
  const auto event = accelerator->make_event();
  int looks = 0, others = 0;
  {
    const auto look = accelerator->wait_checks().add([&](std::chrono::nanoseconds waited) {
      EXPECT_GT(waited.count(), 0);
      if (++looks > 2) throw Error("the others are gone");
    });
    const auto other = accelerator->wait_checks().add([&](std::chrono::nanoseconds) {
      if (++others > 2) throw Error("so they are here");
    });
    fail("query", FakeApi::kNotReady);
    EXPECT_THAT(error_of([&] { event->synchronize(); }), HasSubstr("the others are gone"));
    EXPECT_EQ(looks, 3);
    EXPECT_EQ(others, 3) << "a look that throws keeps no other from ending its work";
    fail("stream query", FakeApi::kNotReady);
    EXPECT_THAT(error_of([&] { stream->synchronize(); }), HasSubstr("the others are gone"));
    EXPECT_THAT(error_of([&] { accelerator->synchronize(); }), HasSubstr("the others are gone"));
    state().failures.clear();
    EXPECT_NO_THROW(accelerator->synchronize());
    fail("stream query");
    EXPECT_THAT(error_of([&] { stream->synchronize(); }), HasSubstr("fakeStreamQuery failed"));
  }
  state().failures.clear();
  state().calls.clear();
  event->synchronize();  // nobody looks any more
  EXPECT_THAT(state().calls, ElementsAre("host event wait"));
}

TEST_F(GpuAccelerator, MemoryBeginsAsZerosAndIsFreed) {
  const auto accelerator = open();
  EXPECT_EQ(accelerator->name(), "Fake 9000");
  const AcceleratorProperties properties = accelerator->properties();
  EXPECT_EQ(properties.architecture, "fake_1");
  EXPECT_EQ(properties.lanes, 32);
  EXPECT_EQ(properties.multiprocessors, 7);
  EXPECT_EQ(properties.memory_bytes, 1 << 20);
  {
    const auto memory = accelerator->allocate(8);
    const auto host = accelerator->allocate_host(8);
    EXPECT_EQ(accelerator->free_bytes(), (1 << 20) - 16);
    for (const auto* const block : {memory.get(), host.get()}) {
      EXPECT_EQ(std::string(static_cast<const char*>(block->address()), 8), std::string(8, '\0'));
    }
    EXPECT_NE(accelerator->allocate(0)->address(), nullptr);
  }
  EXPECT_EQ(accelerator->free_bytes(), 1 << 20);
}

TEST_F(GpuAccelerator, MemoryThatIsNotThereIsRefusedWithWhatIsFree) {
  const auto accelerator = open();
  const auto memory = accelerator->allocate(1 << 19);
  EXPECT_THAT(error_of([&] { accelerator->allocate(1 << 20); }),
              AllOf(HasSubstr("Fake 9000"), HasSubstr("1.0 MiB"),
                    HasSubstr("512.0 KiB of it are free"), HasSubstr("train.micro_batch")));
  EXPECT_THAT(error_of([&] { accelerator->allocate_host(1 << 20); }), HasSubstr("pinned"));
  EXPECT_EQ(state().last_error, 0) << "the runtime still has the error";
}

TEST_F(GpuAccelerator, CopiesOfTheHostWaitForTheDeviceBeforeAndAfter) {
  const auto accelerator = open();
  const auto memory = accelerator->allocate(4);
  const int value = 42;
  state().calls.clear();
  accelerator->upload(std::as_bytes(std::span(&value, 1)), memory->address());
  EXPECT_THAT(state().calls, ElementsAre("wait", "memcpy", "wait"));
  int read = 0;
  accelerator->readback(memory->address(), std::as_writable_bytes(std::span(&read, 1)));
  EXPECT_EQ(read, 42);
}

TEST_F(GpuAccelerator, AStreamForTheNetworkGoesFirst) {
  const auto accelerator = open();
  state().calls.clear();
  accelerator->make_stream();
  accelerator->make_stream(Priority::high);
  EXPECT_THAT(state().calls, ElementsAre("priorities", "stream of priority 0", "end of stream",
                                         "priorities", "stream of priority -5", "end of stream"));
}

TEST_F(GpuAccelerator, WorkThatFailedIsReportedByTheNextWait) {
  const auto accelerator = open();
  const auto stream = accelerator->make_stream();
  fail("stream wait");
  EXPECT_THAT(error_of([&] { stream->synchronize(); }),
              AllOf(HasSubstr("fakeStreamSynchronize"), HasSubstr("fakeErrorIllegal (99)")));
  fail("wait");
  EXPECT_THAT(error_of([&] { accelerator->synchronize(); }), HasSubstr("fakeDeviceSynchronize"));
}

TEST_F(GpuAccelerator, EventsAreAskedAndTimed) {
  const auto accelerator = open();
  const auto begin = accelerator->make_event(), end = accelerator->make_event();
  EXPECT_TRUE(end->reached());
  fail("query", FakeApi::kNotReady);
  EXPECT_FALSE(end->reached());
  EXPECT_EQ(state().last_error, 0) << "that work goes on is no error";
  fail("query");
  EXPECT_THAT(error_of([&] { end->reached(); }), HasSubstr("fakeEventQuery"));
  EXPECT_DOUBLE_EQ(end->seconds_since(*begin), 1.5);
}

TEST_F(GpuAccelerator, AGraphIsInstantiatedOnceAndOutlivesItsLaunches) {
  const auto accelerator = open();
  const auto stream = accelerator->make_stream();
  state().calls.clear();
  stream->begin_capture();
  EXPECT_THROW(stream->synchronize(), InternalError);
  auto graph = stream->end_capture();
  stream->launch(*graph);
  stream->launch(*graph);
  graph.reset();
  EXPECT_THAT(state().calls, ElementsAre("begin", "end", "instantiate", "end of graph",
                                         "launch graph", "launch graph", "wait", "end of graph"));
}

TEST_F(GpuAccelerator, ACaptureThatFailsOrIsLeftEnds) {
  const auto accelerator = open();
  auto stream = accelerator->make_stream();
  stream->begin_capture();
  fail("end");
  EXPECT_THAT(error_of([&] { stream->end_capture(); }), HasSubstr("fakeEndCapture"));
  state().failures.clear();
  stream->begin_capture();
  fail("instantiate");
  EXPECT_THAT(error_of([&] { stream->end_capture(); }), HasSubstr("fakeGraphInstantiate"));
  state().failures.clear();
  stream->begin_capture();
  stream.reset();
  EXPECT_EQ(state().begun_captures, 0);
}

TEST_F(GpuAccelerator, ACaptureIsAbandonedEvenIfItIsInvalid) {
  const auto accelerator = open();
  const auto stream = accelerator->make_stream();
  stream->abandon_capture();  // there is none
  for (const bool invalid : {false, true}) {
    state().failures.clear();
    state().calls.clear();
    if (invalid) fail("end");
    stream->begin_capture();
    stream->abandon_capture();
    EXPECT_EQ(state().begun_captures, 0);
    EXPECT_EQ(state().last_error, 0) << "the next call would seem to have failed";
    EXPECT_EQ(state().calls.back(), invalid ? "end" : "end of graph");
    EXPECT_NO_THROW(stream->synchronize());
  }
}

TEST_F(GpuAccelerator, LaunchesWithTheGridAndSaysWhatWasRefused) {
  const auto accelerator = open();
  const auto stream = accelerator->make_stream();
  int argument = 17;
  void* arguments[] = {&argument};
  const auto launch = [&](const Grid& grid) {
    launch_on_gpu<FakeApi>(&argument, grid, *stream, arguments);
  };
  state().calls.clear();
  launch({.blocks = 3, .threads = 64, .blocks_y = 2, .threads_y = 4, .shared_bytes = 48 * 1024});
  launch({.shared_bytes = 48 * 1024 + 1});
  EXPECT_THAT(state().calls, ElementsAre("3x2 blocks of 64x4, 49152 shared, argument 17", "launch",
                                         "shared bytes 49153",
                                         "1x1 blocks of 1x1, 49153 shared, argument 17", "launch"));
  fail("launch");
  EXPECT_THAT(error_of([&] { launch({.blocks = 5, .threads = 96}); }),
              AllOf(HasSubstr("some_kernel"), HasSubstr("5 x 1 blocks of 96 x 1 threads"),
                    HasSubstr("fakeErrorIllegal (99)")));
  EXPECT_EQ(state().last_error, 0) << "the runtime still has the error";
}

TEST_F(GpuAccelerator, GridsThatNoDeviceHasAreRefused) {
  EXPECT_NO_THROW(
      check_grid({.blocks = 2147483647, .threads = 32, .blocks_y = 65535, .threads_y = 32}));
  EXPECT_THROW(check_grid({.blocks = int64_t{1} << 31}), InternalError);
  EXPECT_THROW(check_grid({.blocks_y = 65536}), InternalError);
  EXPECT_THROW(check_grid({.blocks = -1}), InternalError);
  EXPECT_THROW(check_grid({.threads = 1025}), InternalError);
  EXPECT_THROW(check_grid({.threads = 64, .threads_y = 32}), InternalError);
  EXPECT_THROW(check_grid({.threads = 0}), InternalError);
}

}  // namespace
}  // namespace tessera
