// Ranks that meet by TCP, each in a thread of this process.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/ranks_and_values.h"
#include "comm/tcp/first_process.h"
#include "comm/tcp/other_process.h"
#include "comm/tcp/plane_process.h"
#include "comm/tcp/wire.h"
#include "comm/tcp_support.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using testing::end_well;
using testing::free_address;
using testing::kPatience;
using testing::kToken;
using testing::run_by_tcp;

/// All kinds of calls of one rank, as bytes.
std::string all_calls(Communicator& group) {
  const int ranks = group.size();
  const int own = group.position();
  std::string result;
  const auto keep = [&](const Tensor& tensor) { result += bytes_of(tensor); };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor whole = random_tensor({7 * ranks, 3}, dtype, own);
    const Tensor other = random_tensor({7 * ranks, 3}, dtype, 100 + own);
    // Pieces in several places, of other lengths.
    const std::vector<ElementRun> rest{{.begin = 1, .length = 7 * ranks - ranks}};
    std::vector<std::vector<ElementRun>> runs{{{.begin = 0, .length = 1}}};
    runs[0].insert(runs[0].end(), rest.begin(), rest.end());
    for (int rank = 1; rank < ranks; ++rank) {
      runs.push_back({{.begin = 7 * ranks - ranks + rank, .length = 1}});
    }
    const PieceLayout layout(1, 7 * ranks, 3, runs);
    const Tensor piece = random_tensor({layout.elements(own)}, dtype, 200 + own);
    group.all_gather("gather", layout, piece, whole);
    keep(whole);
    group.reduce_scatter("scatter", layout, other, piece);
    keep(piece);
    group.all_reduce("sum", other, other);
    keep(other);
    group.broadcast("from the last", ranks - 1, whole);
    keep(whole);
    group.all_to_all("blocks", whole, other);
    keep(other);
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    for (int rank = 0; rank < ranks; ++rank) {
      sent.push_back((own + 2 * rank) % 4);
      received.push_back((rank + 2 * own) % 4);
    }
    group.all_to_all_rows("rows", whole, sent, other, received);
    keep(other);
    const Message send{.peer = (own + 1) % ranks, .tensor = whole};
    const Message receive{.peer = (own + ranks - 1) % ranks, .tensor = other};
    group.exchange("ring", std::span(&send, 1), std::span(&receive, 1));
    keep(other);
  }
  const Tensor none({0}, DType::f32);
  group.all_reduce("of nothing", none, none);
  group.barrier("done");
  return result;
}

TEST(TcpProcesses, MakeAllCallsAsThreadsDo) {
  for (const int ranks : {2, 3}) {
    std::vector<std::string> by_threads(static_cast<size_t>(ranks));
    run_group(ranks, [&](Communicator& group) {
      by_threads[static_cast<size_t>(group.position())] = all_calls(group);
    });
    run_by_tcp(ranks, [&](Processes& processes) {
      Communicator group = processes.group(first_ranks(ranks), "network");
      EXPECT_TRUE(all_calls(group) == by_threads[static_cast<size_t>(processes.rank())]);
      EXPECT_EQ(processes.hosts()[1], "host1");
      end_well(processes);
    });
  }
}

TEST(TcpProcesses, MeetInSeveralGroupsAndLanesAtOnce) {
  run_by_tcp(3, [](Processes& processes) {
    std::vector<std::jthread> lanes;
    for (const char* lane : {"network", "memory"}) {
      lanes.emplace_back([&processes, lane] {
        Communicator all = processes.group(std::vector<int>{0, 1, 2}, lane);
        std::optional<Communicator> some;
        if (processes.rank() > 0) some = processes.group(std::vector<int>{2, 1}, lane);
        for (int i = 0; i < 50; ++i) {
          const Tensor one({1}, DType::f32);
          set(one, 0, 1);
          all.all_reduce("count", one, one);
          EXPECT_EQ(get(one, 0), 3);
          if (!some) continue;
          some->all_reduce("count", one, one);
          EXPECT_EQ(get(one, 0), 6);
        }
      });
    }
    lanes.clear();
    end_well(processes);
  });
}

/// The first rank's process serves 1024 groups of a rank at a time.
TEST(TcpProcesses, MayLeaveMoreGroupsThanTheyMayHaveAtATime) {
  run_by_tcp(2, [](Processes& processes) {
    for (int i = 0; i < 1100; ++i) processes.group(first_ranks(2), "again").barrier("here");
    end_well(processes);
  });
}

/// A rank whose connection ends before it says that it has ended.
TEST(TcpProcesses, ARankThatIsLostIsNamedToAll) {
  run_by_tcp(3, [](Processes& processes) {
    Communicator group = processes.group(first_ranks(3), "network");
    Communicator control = processes.group(first_ranks(3), "control");
    group.barrier("step");
    if (processes.rank() == 2) return;
    const std::string expected = "rank 2 failed: its process on host2 is gone";
    const std::string error = error_of([&] { group.barrier("step"); });
    EXPECT_THAT(error, HasSubstr(expected));
    EXPECT_EQ(error_of([&] { group.throw_if_broken(); }), error);
    EXPECT_THAT(error_of([&] { control.barrier("control"); }), HasSubstr(expected));
    const auto report = processes.report_end(error, kPatience);
    EXPECT_EQ(report, processes.rank() == 0 ? Processes::Report::own : Processes::Report::none);
    EXPECT_FALSE(processes.all_ended());
  });
}

TEST(TcpProcesses, ACallIsGivenUpWhereTheWorkOfAnotherFailed) {
  run_by_tcp(2, [](Processes& processes) {
    Communicator group = processes.group(first_ranks(2), "network");
    Communicator control = processes.group(first_ranks(2), "control");
    if (processes.rank() == 0) {
      processes.end_work("its experts got too many rows");
    } else {
      // It computes, and looks whether that still has a use.
      const auto look = [&] {
        for (int i = 0; i < 200; ++i) {
          group.throw_if_broken();
          std::this_thread::sleep_for(milliseconds(50));
        }
      };
      EXPECT_EQ(error_of(look), "rank 0 failed: its experts got too many rows");
    }
    control.barrier("after it");
    end_well(processes);
  });
}

TEST(TcpReports, AreMadeOnceByTheRankThatKnowsTheCause) {
  using Report = Processes::Report;
  const auto reports = [](const std::map<int, std::string>& ends, int ranks) {
    std::vector<Report> result;
    for (const auto& [rank, error] : ends) result.push_back(report_of(rank, ends, ranks));
    return result;
  };
  EXPECT_EQ(reports({{0, ""}, {1, ""}}, 2), (std::vector{Report::none, Report::none}));
  EXPECT_EQ(reports({{0, "full disk"}, {1, "full disk"}}, 2),
            (std::vector{Report::for_all, Report::none}));
  EXPECT_EQ(reports({{0, "rank 1 failed: full disk"}, {1, "full disk"}}, 2),
            (std::vector{Report::none, Report::own}));
  EXPECT_EQ(reports({{1, "rank 0 failed: it is gone"}, {2, "rank 0 failed: it is gone"}}, 3),
            (std::vector{Report::own, Report::none}));
  EXPECT_EQ(reports({{0, "a"}, {1, "b"}, {2, ""}}, 3),
            (std::vector{Report::own, Report::own, Report::none}));
}

TEST(TcpAddresses, AreReadWithNamesAndNumbers) {
  const auto read = [](const char* text) { return parse_tcp_address("TESSERA_ADDRESS", text); };
  EXPECT_EQ(read("node0:29500").host, "node0");
  EXPECT_EQ(read("node0:29500").port, 29500);
  EXPECT_EQ(read("[fd00::1]:1").host, "fd00::1");
  EXPECT_EQ(read("[fd00::1]:1").text(), "[fd00::1]:1");
  for (const char* text : {"", "node0", ":29500", "node0:", "node0:0", "node0:65536", "node0:x",
                           "node0:1x", "fd00::1:29500", "node0:-1"}) {
    EXPECT_THAT(error_of([&] { read(text); }),
                AllOf(HasSubstr("TESSERA_ADDRESS is"), HasSubstr("node0:29500")))
        << text;
  }
}

/// What no other machine reaches needs no token.
TEST(TcpAddresses, OfTheLoopbackAreListenedAtThereAlone) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(is_loopback({host, 29500})) << host;
    for (const SystemAddress& at : listening_addresses({host, 29500})) {
      EXPECT_TRUE(at.is_loopback()) << host;
    }
  }
  std::array<char, 256> own{};
  ASSERT_EQ(::gethostname(own.data(), own.size() - 1), 0);
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "fd00::1", "192.0.2.1"}) {
    EXPECT_FALSE(is_loopback({host, 29500})) << host;
  }
  EXPECT_EQ(is_loopback({own.data(), 29500}), std::string_view(own.data()) == "localhost");
}

TEST(WireLetters, ThatEndEarlyAreNoLetters) {
  WireWriter writer;
  writer.put("layers.0.norm", std::vector<int64_t>{1, 2, 3});
  const auto whole = writer.bytes();
  for (size_t length = 0; length <= whole.size(); ++length) {
    WireReader reader(whole.first(length));
    const auto read = [&] {
      EXPECT_EQ(reader.take_text(), "layers.0.norm");
      EXPECT_EQ(reader.take_all<int64_t>(), (std::vector<int64_t>{1, 2, 3}));
    };
    if (length < whole.size()) {
      EXPECT_THROW(read(), ConnectionLost) << length;
    } else {
      read();
    }
  }
}

}  // namespace
}  // namespace tessera
