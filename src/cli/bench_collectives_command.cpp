#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "cli/bench_commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/several_processes.h"
#include "comm/in_process/world.h"
#include "comm/processes.h"
#include "comm/wait_time.h"
#include "hardware/collective_groups.h"
#include "hardware/hardware_file.h"

// The ranks of `bench collectives` are threads of this process or, under a launcher, one in each
// process. Threads of each number of ranks are one group. All processes measure at once, in groups.

namespace tessera {
namespace {

struct CollectiveArguments {
  std::vector<std::string> collectives;
  std::vector<int64_t> sizes{int64_t{1} << 10, int64_t{1} << 12, int64_t{1} << 14,
                             int64_t{1} << 16, int64_t{1} << 18, int64_t{1} << 20,
                             int64_t{1} << 22, int64_t{1} << 24, int64_t{1} << 26};
  std::vector<int> ranks;  // empty: all processes, or two threads
  std::string precision{word(Precision::fp32)};
  double seconds = CollectiveSweep{}.seconds;
  int64_t rank_timeout = std::chrono::seconds(kRankTimeout).count();
  bool json = false;
  std::string picture;   // empty: none
  std::string hardware;  // the file that keeps the rates; empty: none
};

CollectiveSweep sweep_of(const CollectiveArguments& arguments) {
  CollectiveSweep sweep{.collectives = {},
                        .bytes = arguments.sizes,
                        .dtype = compute_dtype(from_word<Precision>(arguments.precision)),
                        .seconds = arguments.seconds};
  for (const std::string& name : arguments.collectives) {
    sweep.collectives.push_back(from_word<Collective>(name));
  }
  if (sweep.collectives.empty()) {
    sweep.collectives.assign(kMeasuredCollectives.begin(), kMeasuredCollectives.end());
  }
  return sweep;
}

/// Returns the rates among N threads of this process, for each N of --ranks.
std::vector<CollectiveRate> measure_threads(const CollectiveArguments& arguments) {
  const CollectiveSweep sweep = sweep_of(arguments);
  std::vector<CollectiveRate> rates;
  for (const int ranks : arguments.ranks.empty() ? std::vector{2} : arguments.ranks) {
    World world(ranks, std::chrono::seconds(arguments.rank_timeout));
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
    run_ranks(world, [&](int rank) {
      Communicator group = world.group(rank, members);
      const auto measured =
          measure_collectives(group, group, {.kind = RankKind::threads, .count = ranks}, sweep);
      if (rank == 0) rates.insert(rates.end(), measured.begin(), measured.end());
    });
  }
  return rates;
}

/// Returns the rates among N processes, for each N of --ranks: those of all groups that
/// collective_groups() returns. A process that is in none of them measures nothing.
std::vector<CollectiveRate> measure_processes(const CollectiveArguments& arguments,
                                              Processes& processes) {
  const CollectiveSweep sweep = sweep_of(arguments);
  processes.set_timeout(std::chrono::seconds(arguments.rank_timeout));
  std::vector<CollectiveRate> rates;
  for (const int count :
       arguments.ranks.empty() ? std::vector{processes.ranks()} : arguments.ranks) {
    if (count > processes.ranks()) {
      throw Error("--ranks is {}, and there are {} processes", count, processes.ranks());
    }
    int way = 0;
    for (const CollectiveGroups& at_once : collective_groups(count, processes.hosts())) {
      const std::string lane = fmt::format("bench {} {}", count, way++);
      const auto own = std::ranges::find_if(at_once.groups, [&](const std::vector<int>& members) {
        return std::ranges::find(members, processes.rank()) != members.end();
      });
      if (own == at_once.groups.end()) continue;
      std::vector<int> everyone;
      for (const std::vector<int>& members : at_once.groups) {
        everyone.insert(everyone.end(), members.begin(), members.end());
      }
      std::ranges::sort(everyone);
      Communicator group = processes.group(*own, lane);
      Communicator all = processes.group(everyone, lane + " all");
      const auto measured =
          measure_collectives(group, all, {RankKind::processes, count, at_once.machines}, sweep);
      rates.insert(rates.end(), measured.begin(), measured.end());
    }
  }
  return rates;
}

/// Throws Error unless the file is a hardware file that can keep the rates.
void require_processor_file(const fs::path& path) {
  const Hardware hardware = read_hardware(path);
  if (!hardware.accelerator) return;
  throw Error(
      "--hardware: {} is about {}, and the collectives are measured between threads or processes "
      "of processors; name a file that `tessera bench all --device cpu` wrote",
      path.string(), describe(*hardware.accelerator));
}

/// Writes the rates into a hardware file. A rate replaces an older one of the same collective,
/// type, ranks and bytes.
void add_to_hardware_file(const std::vector<CollectiveRate>& rates, const fs::path& path) {
  Hardware hardware = read_hardware(path);
  for (const CollectiveRate& rate : rates) {
    std::erase_if(hardware.collectives, [&](const CollectiveRate& old) {
      return old.collective == rate.collective && old.dtype == rate.dtype &&
             old.ranks == rate.ranks && old.bytes == rate.bytes;
    });
    hardware.collectives.push_back(rate);
  }
  write_file(path, hardware_json(hardware));
}

/// Measures among threads or processes. The first process checks the files first, and reports.
void run(const CollectiveArguments& arguments, Processes* processes) {
  const bool first = processes == nullptr || processes->rank() == 0;
  if (first) {
    require_picture(arguments.picture);
    if (!arguments.hardware.empty()) {
      require_processor_file(arguments.hardware);
      require_writable(arguments.hardware);
    }
  }
  const InterruptGuard guard;
  const std::vector<CollectiveRate> rates =
      processes != nullptr ? measure_processes(arguments, *processes) : measure_threads(arguments);
  if (!first) return;
  fmt::print("{}", arguments.json ? collectives_json(rates) : collectives_text(rates));
  if (!arguments.picture.empty()) write_file(arguments.picture, collectives_picture(rates));
  if (!arguments.hardware.empty()) add_to_hardware_file(rates, arguments.hardware);
}

}  // namespace

void add_bench_collectives(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "collectives",
      "Bus bandwidth and time of collectives, by size and number of ranks: threads of this "
      "process, or under mpirun or srun processes");
  auto arguments = std::make_shared<CollectiveArguments>();
  std::vector<std::string> names;
  for (const Collective collective : kMeasuredCollectives) names.emplace_back(word(collective));
  add_list(*command, "--collectives", arguments->collectives,
           "Collectives to measure; left out: all of them")
      ->check(CLI::IsMember(names));
  add_list(*command, "--ranks", arguments->ranks,
           "Numbers of ranks, each measured; left out: all processes, or 2 threads. Groups of "
           "processes measure at once: of neighbours and, if those are of fewer machines, of "
           "processes far apart")
      ->check(CLI::Range(2, 1024));
  add_size_list(*command, "--sizes", arguments->sizes,
                "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB",
                "Bytes of the whole that is gathered, summed or broadcast, or that a rank sends");
  command->add_option("--precision", arguments->precision, "The precision of the elements")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  add_number(*command, "--seconds", arguments->seconds, 0, 1e6,
             "About how long each collective of a size is measured");
  add_number(*command, "--rank-timeout", arguments->rank_timeout, 1, 1 << 20,
             "Seconds that a rank waits for another before all end");
  command->add_flag("--json", arguments->json, "Print JSON");
  add_picture(*command, arguments->picture);
  add_output(*command, "--hardware", arguments->hardware,
             "A file of `tessera bench all` about a processor, which then keeps the rates too");
  command->callback([arguments] {
    const std::unique_ptr<Processes> processes =
        join_processes(std::chrono::seconds(arguments->rank_timeout));
    run_as_one_process(processes.get(), [&] { run(*arguments, processes.get()); });
  });
}

}  // namespace tessera
