#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/any_pieces.h"
#include "comm/connect_devices.h"
#include "comm/emulated_links.h"
#include "comm/rank_device.h"
#include "device/emulated_accelerator.h"
#include "support/error_of.h"

namespace tessera {
namespace {

/// Runs body(group, device) on so many ranks, which are one group of emulated devices that stage
/// `staging` bytes.
void run_devices(int size, int64_t staging,
                 const std::function<void(Communicator&, RankDevice&)>& body) {
  World world(size);
  run_ranks(world, [&](int rank) {
    RankDevice device(rank % 2 == 0 ? 32 : 64);
    Communicator group = world.group(rank, first_ranks(size));
    group.use_devices(emulated_links(world.group(rank, first_ranks(size), "links")), staging);
    body(group, device);
    device.stream().synchronize();
  });
}

int any_device_group() { return *rc::gen::inRange(1, 5); }
/// Of which small operands need several rounds, or one.
int64_t any_staging() { return *rc::gen::element<int64_t>(1, int64_t{1} << 20); }
/// Where an operand begins: aligned, or not.
int64_t any_place(DType dtype) { return *rc::gen::element<int64_t>(0, 1, 4) * dtype_size(dtype); }

/// The emulated devices' links take all sums in rank order.
Reduction any_sum() { return *rc::gen::element(Reduction::sum, Reduction::unordered_sum); }

RC_GTEST_PROP(DeviceCollectives, GatherAndScatterAsTheProcessorDoes, ()) {
  const int size = any_device_group();
  const Whole whole = any_whole(size);
  const DType dtype = any_sum_type();
  const std::vector<Tensor> addends = random_tensors(size, whole.shape, dtype, any_seed());
  const PieceLayout layout = pieces_of(whole.shape, whole.type, size);
  const int64_t place = any_place(dtype), staging = any_staging();
  const Reduction sum = any_sum();
  std::vector<std::string> sums(static_cast<size_t>(size)), wholes(sums.size());
  run_devices(size, staging, [&](Communicator& group, RankDevice& device) {
    const auto position = static_cast<size_t>(group.position());
    const Tensor from = device.copy(addends[position], place);
    const Tensor piece =
        device.copy(random_tensor({layout.elements(group.position())}, dtype, 1), place);
    const Tensor to = device.copy(random_tensor(whole.shape, dtype, 2));
    group.reduce_scatter("gradient", layout, from, piece, sum,
                         device.call(reduce_scatter_workspace(layout, dtype, sum, staging)));
    group.all_gather("whole", layout, piece, to,
                     device.call(all_gather_workspace(layout, dtype, staging)));
    device.stream().synchronize();
    sums[position] = bytes_of(on_host(piece));
    wholes[position] = bytes_of(on_host(to));
  });
  std::vector<std::string> expected_sums(sums.size()), expected_wholes(sums.size());
  run_group(size, [&](Communicator& group) {
    const auto position = static_cast<size_t>(group.position());
    const Tensor piece({layout.elements(group.position())}, dtype);
    const Tensor to(whole.shape, dtype);
    group.reduce_scatter("gradient", layout, addends[position], piece);
    group.all_gather("whole", layout, piece, to);
    expected_sums[position] = bytes_of(piece);
    expected_wholes[position] = bytes_of(to);
  });
  RC_ASSERT(sums == expected_sums);
  RC_ASSERT(wholes == expected_wholes);
}

RC_GTEST_PROP(DeviceCollectives, ReduceAsTheProcessorDoes, ()) {
  const int size = any_device_group();
  const DType dtype = any_sum_type();
  const bool maximum = dtype != DType::bf16 && dtype != DType::i32 && *rc::gen::arbitrary<bool>();
  const Reduction reduction = maximum ? Reduction::maximum : any_sum();
  const Shape shape{*rc::gen::element<int64_t>(0, 1, 3, 40, 40'003)};
  const std::vector<Tensor> addends = random_tensors(size, shape, dtype, any_seed());
  const bool in_place = *rc::gen::arbitrary<bool>();
  const int64_t place = any_place(dtype), staging = any_staging();
  std::vector<std::string> results(static_cast<size_t>(size)), expected(results.size());
  run_devices(size, staging, [&](Communicator& group, RankDevice& device) {
    const auto position = static_cast<size_t>(group.position());
    const Tensor from = device.copy(addends[position], place);
    const Tensor to = in_place ? from : device.copy(random_tensor(shape, dtype, 1));
    group.all_reduce(
        "loss", from, to, reduction,
        device.call(all_reduce_workspace(shape.elements(), dtype, size, reduction, staging)));
    device.stream().synchronize();
    results[position] = bytes_of(on_host(to));
  });
  run_group(size, [&](Communicator& group) {
    const auto position = static_cast<size_t>(group.position());
    const Tensor to(shape, dtype);
    group.all_reduce("loss", addends[position], to, reduction);
    expected[position] = bytes_of(to);
  });
  RC_ASSERT(results == expected);
}

TEST(DeviceCollectives, BroadcastWhatOneDeviceHas) {
  const Tensor sent = random_tensor({1001}, DType::bf16, 3);
  std::vector<std::string> results(3);
  run_devices(3, kDeviceStagingBytes, [&](Communicator& group, RankDevice& device) {
    const Tensor own = device.copy(group.position() == 1 ? sent : Tensor({1001}, DType::bf16));
    group.broadcast("weights", 1, own, device.call(0));
    device.stream().synchronize();
    results[static_cast<size_t>(group.position())] = bytes_of(on_host(own));
  });
  EXPECT_EQ(results, std::vector<std::string>(3, bytes_of(sent)));
}

/// Ranks 0 and 1 send to each other, rank 1 to rank 2 as well, and rank 3 does not call.
TEST(DeviceCollectives, SendMessagesBetweenTheRanksThatTheyName) {
  constexpr int64_t kElements = 301;
  const std::vector<Tensor> sent = random_tensors(4, {kElements}, DType::f32, 5);
  struct Sent {
    int from, to;
    int64_t elements;
  };
  const std::vector<Sent> messages{{0, 1, kElements}, {1, 0, 7}, {1, 2, 100}};
  std::vector<int64_t> received(4);
  run_devices(4, kDeviceStagingBytes, [&](Communicator& group, RankDevice& device) {
    const int position = group.position();
    const Tensor own = device.copy(sent[static_cast<size_t>(position)], 4);
    std::vector<Message> sends, receives;
    for (const Sent& each : messages) {
      if (each.from == position) sends.push_back({each.to, own.view(0, {each.elements})});
      if (each.to != position) continue;
      receives.push_back({each.from, device.copy(Tensor({each.elements}, DType::f32))});
    }
    if (position != 3) group.exchange("edges", sends, receives, device.call(0));
    device.stream().synchronize();
    for (const Message& message : receives) {
      const Tensor& whole = sent[static_cast<size_t>(message.peer)];
      EXPECT_EQ(bytes_of(on_host(message.tensor)),
                bytes_of(whole).substr(0, static_cast<size_t>(message.tensor.bytes())))
          << message.peer << " to " << position;
    }
    received[static_cast<size_t>(position)] = group.traffic(Collective::message).received_bytes;
  });
  EXPECT_EQ(received, (std::vector<int64_t>{4 * 7, 4 * kElements, 4 * 100, 0}));
}

TEST(DeviceCollectives, AreRepeatedByAGraphWithoutAnotherComparison) {
  constexpr int kTimes = 4;
  std::vector<double> results(3);
  std::vector<int64_t> calls(3);
  run_devices(3, kDeviceStagingBytes, [&](Communicator& group, RankDevice& device) {
    const Tensor value = device.copy(random_tensor({1}, DType::f64, 5));
    const double one = 1;
    upload(std::as_bytes(std::span(&one, 1)), value);
    const Tensor received = device.copy(Tensor({1}, DType::f64));
    const DeviceCall call = device.call(all_reduce_workspace(1, DType::f64, 3));
    device.stream().begin_capture();
    group.all_reduce("sum", value, value, Reduction::sum, call);
    const Message next{(group.position() + 1) % 3, value};
    const Message last{(group.position() + 2) % 3, received};
    group.exchange("pass on", std::span(&next, 1), std::span(&last, 1), call);
    const std::unique_ptr<Graph> graph = device.stream().end_capture();
    for (int i = 0; i < kTimes; ++i) device.stream().launch(*graph);
    device.stream().synchronize();
    results[static_cast<size_t>(group.position())] = get(on_host(value), 0);
    EXPECT_EQ(get(on_host(received), 0), 81);
    calls[static_cast<size_t>(group.position())] = group.traffic(Collective::all_reduce).calls;
  });
  EXPECT_EQ(results, std::vector<double>(3, 81));  // three times as much each time
  EXPECT_EQ(calls, std::vector<int64_t>(3, 1));
}

TEST(DeviceCollectives, ReceiveTheBytesOfARing) {
  constexpr int64_t kElements = 64 * 1024;
  std::vector<int64_t> received(4);
  run_devices(4, kDeviceStagingBytes, [&](Communicator& group, RankDevice& device) {
    const Tensor value = device.copy(random_tensor({kElements}, DType::f32, 1));
    group.all_reduce("gradient", value, value, Reduction::sum,
                     device.call(all_reduce_workspace(kElements, DType::f32, 4)));
    received[static_cast<size_t>(group.position())] =
        group.traffic(Collective::all_reduce).received_bytes;
  });
  EXPECT_EQ(received, std::vector<int64_t>(4, 2 * kElements * 4 * 3 / 4));
}

TEST(DeviceCollectives, ThatDifferAreNamedBeforeAnyWorkIsGiven) {
  World world(2);
  const std::string error = error_of([&] {
    run_ranks(world, [&](int rank) {
      RankDevice device(32);
      Communicator group = world.group(rank, first_ranks(2));
      group.use_devices(emulated_links(world.group(rank, first_ranks(2), "links")));
      const Tensor value = device.copy(Tensor({4 + rank}, DType::f32));
      group.all_reduce("loss", value, value, Reduction::sum,
                       device.call(all_reduce_workspace(5, DType::f32, 2)));
    });
  });
  EXPECT_THAT(error,
              ::testing::HasSubstr("rank 0 made call 0, all_reduce (sum) 'loss' of f32 [4]"));
  EXPECT_THAT(error,
              ::testing::HasSubstr("rank 1 made call 0, all_reduce (sum) 'loss' of f32 [5]"));
}

TEST(DeviceCollectives, MessagesThatDifferAreNamedBeforeAnyWorkIsGiven) {
  const std::string error = error_of([&] {
    run_devices(2, kDeviceStagingBytes, [&](Communicator& group, RankDevice& device) {
      const Message message{1 - group.position(),
                            device.copy(Tensor({4 + group.position()}, DType::f32))};
      const std::span<const Message> one(&message, 1), none;
      const bool sends = group.position() == 0;
      group.exchange("edges", sends ? one : none, sends ? none : one, device.call(0));
    });
  });
  EXPECT_THAT(error, ::testing::HasSubstr("'edges' of f32 [4]"));
  EXPECT_THAT(error, ::testing::HasSubstr("'edges' of f32 [5]"));
}

TEST(DeviceCollectives, EndWhereAnotherRankDoesNotGoOn) {
  World world(2, std::chrono::seconds(60));
  const std::string error = error_of([&] {
    run_ranks(world, [&](int rank) {
      RankDevice device(32);
      Communicator group = world.group(rank, first_ranks(2));
      Communicator links = world.group(rank, first_ranks(2), "links");
      if (rank == 1) throw Error("this device is on fire");
      const Tensor value = device.copy(Tensor({4}, DType::f32));
      auto waits = emulated_links(std::move(links));
      waits->broadcast("weights", 1, static_cast<std::byte*>(value.address()), value.bytes(),
                       device.stream());
      device.stream().synchronize();
    });
  });
  EXPECT_THAT(error, ::testing::HasSubstr("this device is on fire"));
}

TEST(DeviceCollectives, WithoutDevicesAreAMistake) {
  EXPECT_THROW(run_group(1,
                         [&](Communicator& group) {
                           RankDevice device(32);
                           const Tensor value = device.copy(Tensor({4}, DType::f32));
                           group.all_reduce("loss", value, value, Reduction::sum, device.call(64));
                         }),
               InternalError);
}

/// What links lose on the first rank.
enum class Loss { nothing, gathered, exchanged, summed };

/// Links that lose the first number of what they gather, exchange or sum. They note their calls.
class LosingLinks final : public DeviceLinks {
 public:
  explicit LosingLinks(std::unique_ptr<DeviceLinks> links, Loss loss = Loss::nothing,
                       std::vector<std::string>* calls = nullptr)
      : links_(std::move(links)), loss_(loss), calls_(calls) {}
  void all_gather(std::string_view name, const std::byte* from, std::byte* to, int64_t bytes,
                  Stream& stream) override {
    note("all_gather", DType::u8, bytes);
    links_->all_gather(name, from, to, bytes, stream);
    if (loss_ == Loss::gathered) stream.fill_zero(to, 4);
  }
  void broadcast(std::string_view name, int root, std::byte* memory, int64_t bytes,
                 Stream& stream) override {
    note("broadcast", DType::u8, bytes);
    links_->broadcast(name, root, memory, bytes, stream);
  }
  void all_reduce(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                  int64_t elements, Stream& stream) override {
    note("all_reduce", dtype, elements);
    links_->all_reduce(name, dtype, from, to, elements, stream);
    if (loss_ == Loss::summed) stream.fill_zero(to, 4);
  }
  void reduce_scatter(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                      int64_t elements, Stream& stream) override {
    note("reduce_scatter", dtype, elements);
    links_->reduce_scatter(name, dtype, from, to, elements, stream);
  }
  void exchange(std::string_view name, std::span<const DeviceBuffer> sends,
                std::span<const DeviceBuffer> receives, Stream& stream) override {
    note("exchange", DType::u8, sends.empty() ? 0 : sends.front().bytes);
    links_->exchange(name, sends, receives, stream);
    if (loss_ == Loss::exchanged) stream.fill_zero(receives.front().memory, 4);
  }

 private:
  void note(std::string_view call, DType dtype, int64_t elements) {
    if (calls_ == nullptr) return;
    calls_->push_back(fmt::format("{} of {} {}", call, elements, dtype_name(dtype)));
  }

  std::unique_ptr<DeviceLinks> links_;
  Loss loss_;
  std::vector<std::string>* calls_;
};

/// Returns the calls that the links of the first of `size` devices get from body(group, device).
std::vector<std::string> calls_of_links(
    int size, const std::function<void(Communicator&, RankDevice&)>& body) {
  std::vector<std::string> calls;
  World world(size);
  run_ranks(world, [&](int rank) {
    RankDevice device(32);
    Communicator group = world.group(rank, first_ranks(size));
    group.use_devices(
        std::make_unique<LosingLinks>(emulated_links(world.group(rank, first_ranks(size), "links")),
                                      Loss::nothing, rank == 0 ? &calls : nullptr));
    body(group, device);
    device.stream().synchronize();
  });
  return calls;
}

TEST(DeviceCollectives, LeaveUnorderedSumsToTheLibraryInTheTypeOfTheElements) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i32}) {
    const PieceLayout even = even_pieces(40'000, 4);
    EXPECT_EQ(all_reduce_workspace(40'003, dtype, 4, Reduction::unordered_sum), 0);
    EXPECT_EQ(reduce_scatter_workspace(even, dtype, Reduction::unordered_sum), 0);
    const auto calls = calls_of_links(4, [&](Communicator& group, RankDevice& device) {
      const Tensor whole = device.copy(random_tensor({40'003}, dtype, 1));
      group.all_reduce("a", whole, whole, Reduction::unordered_sum, device.call(0));
      const Tensor from = whole.view(0, {40'000});
      const Tensor own = from.view(10'000 * group.position(), {10'000});
      group.reduce_scatter("b", even, from, own, Reduction::unordered_sum, device.call(0));
      EXPECT_EQ(group.traffic(Collective::reduce_scatter).received_bytes,
                30'000 * dtype_size(dtype));
    });
    const std::string_view name = dtype_name(dtype);
    EXPECT_THAT(calls, ::testing::ElementsAre(fmt::format("all_reduce of 40003 {}", name),
                                              fmt::format("reduce_scatter of 10000 {}", name)));
  }
}

TEST(DeviceCollectives, TakeAllOtherReductionsInTheOrderOfTheRanks) {
  const PieceLayout uneven(1, 40, 1, {{{0, 10}}, {{10, 30}}});
  const auto calls = calls_of_links(2, [&](Communicator& group, RankDevice& device) {
    const Tensor whole = device.copy(random_tensor({40}, DType::f32, 1));
    const Tensor own = device.copy(Tensor({uneven.elements(group.position())}, DType::f32));
    const DeviceCall call = device.call(1 << 20);
    group.all_reduce("a", whole, whole, Reduction::sum, call);
    group.all_reduce("b", whole, whole, Reduction::maximum, call);
    group.reduce_scatter("c", even_pieces(40, 2), whole, whole.view(20 * group.position(), {20}),
                         Reduction::sum, call);
    // The library divides into equal pieces only.
    group.reduce_scatter("d", uneven, whole, own, Reduction::unordered_sum, call);
  });
  EXPECT_THAT(calls, ::testing::ElementsAre("all_gather of 192 u8", "all_gather of 192 u8",
                                            "exchange of 80 u8", "exchange of 120 u8"));
  EXPECT_EQ(reduce_scatter_workspace(uneven, DType::f32, Reduction::unordered_sum),
            reduce_scatter_workspace(uneven, DType::f32));
}

TEST(DeviceCollectives, WhoseOrdersOfSumsDifferAreNamed) {
  const std::string error = error_of([&] {
    run_devices(2, kDeviceStagingBytes, [&](Communicator& group, RankDevice& device) {
      const Tensor value = device.copy(Tensor({4}, DType::f32));
      group.all_reduce("loss", value, value,
                       group.position() == 0 ? Reduction::sum : Reduction::unordered_sum,
                       device.call(all_reduce_workspace(4, DType::f32, 2)));
    });
  });
  EXPECT_THAT(error, ::testing::HasSubstr("rank 0 made call 0, all_reduce (sum) 'loss'"));
  EXPECT_THAT(error,
              ::testing::HasSubstr("rank 1 made call 0, all_reduce (sum in any order) 'loss'"));
}

/// Tries a sum over three devices.
void try_sum(Loss on_first) {
  World world(3);
  run_ranks(world, [&](int rank) {
    RankDevice device(32);
    Communicator group = world.group(rank, first_ranks(3));
    group.use_devices(
        std::make_unique<LosingLinks>(emulated_links(world.group(rank, first_ranks(3), "links")),
                                      rank == 0 ? on_first : Loss::nothing));
    require_right_sums(group, device.accelerator());
  });
}

TEST(ConnectDevices, TriesASumOfKnownNumbers) {
  EXPECT_NO_THROW(try_sum(Loss::nothing));
  for (const auto& [loss, sum] : {std::pair(Loss::gathered, "sum"),
                                  {Loss::exchanged, "sum"},
                                  {Loss::summed, "sum in any order"}}) {
    EXPECT_THAT(error_of([&] { try_sum(loss); }),
                ::testing::HasSubstr(fmt::format(
                    "rank 0: the devices of ranks 0, 1, 2 do not add up right: element 0 of the "
                    "self-test ({}) is",
                    sum)));
  }
}

TEST(DeviceCollectives, OfFewerElementsTakeNoMoreMemory) {
  for (const int ranks : {1, 2, 3, 130, 300, 1024}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      int64_t most = 0;
      for (int64_t elements = 1; elements < 400'000; elements = elements * 21 / 20 + 1) {
        const int64_t bytes = all_reduce_workspace(elements, dtype, ranks);
        EXPECT_GE(bytes, most) << elements << " elements, " << ranks << " ranks";
        most = std::max(most, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
