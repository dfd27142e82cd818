#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <numeric>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "base/text.h"
#include "base/words.h"
#include "calls.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/processes.h"

namespace tessera {
namespace {

struct Arguments {
  std::vector<std::string> collectives{"all_gather", "reduce_scatter", "all_reduce",
                                       "all_to_all", "broadcast",      "message"};
  std::vector<std::string> sizes{"1KiB", "4KiB", "16KiB", "64KiB", "256KiB",
                                 "1MiB", "4MiB", "16MiB", "64MiB"};
  int rounds = 15;
  double seconds = 0.01;  // of a round of one program
  bool checks = false;    // compare each call
  bool json = false;
};

/// The largest of the ranks' numbers.
double largest(MPI_Comm comm, double own) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_DOUBLE, MPI_MAX, comm), "MPI_Allreduce");
  return own;
}

/// The seconds that the slowest rank takes for each of so many calls.
double time_calls(MPI_Comm comm, int calls, const std::function<void()>& call) {
  check_mpi(MPI_Barrier(comm), "MPI_Barrier");
  const Stopwatch watch;
  for (int i = 0; i < calls; ++i) call();
  return largest(comm, watch.seconds()) / calls;
}

/// Times of the programs, by round. They take turns, and another one begins each round.
using Times = std::map<std::string, std::vector<double>>;

Times measure(const ComparedCalls& compared, MPI_Comm comm, const Arguments& arguments) {
  std::vector<std::pair<std::string, const std::function<void()>*>> programs{
      {"ours", &compared.ours}, {"plain", &compared.plain}};
  if (compared.alike) programs.emplace_back("alike", &compared.alike);
  std::map<std::string, int> calls;
  for (const auto& [name, call] : programs) {
    time_calls(comm, 3, *call);  // makes what is made once
    const double once = time_calls(comm, 3, *call);
    calls[name] = std::clamp(static_cast<int>(arguments.seconds / once), 2, 5000);
  }
  Times times;
  for (int round = 0; round < arguments.rounds; ++round) {
    for (const auto& [name, call] : programs) {
      times[name].push_back(time_calls(comm, calls[name], *call));
    }
    std::rotate(programs.begin(), programs.begin() + 1, programs.end());
  }
  return times;
}

struct Ratio {
  double median, least, most;
  double of_best;  // of the two programs' best rounds, which nothing else on the machine disturbed

  std::string text() const { return fmt::format("{:.2f} ({:.2f} to {:.2f})", median, least, most); }
  nlohmann::json json() const {
    return {{"median", median}, {"least", least}, {"most", most}, {"of_best", of_best}};
  }
};

Ratio ratio_of(const std::vector<double>& times, const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t round = 0; round < times.size(); ++round) {
    ratios.push_back(times[round] / others[round]);
  }
  return {quantile(ratios, 0.5), std::ranges::min(ratios), std::ranges::max(ratios),
          std::ranges::min(times) / std::ranges::min(others)};
}

std::string microseconds(const std::vector<double>& times) {
  return fmt::format("{:.2f}", quantile(times, 0.5) * 1e6);
}

void run(const Arguments& arguments, Processes& processes) {
  std::vector<int> members(static_cast<size_t>(processes.ranks()));
  std::iota(members.begin(), members.end(), 0);
  Communicator group = processes.group(members, "bench");
  group.compare_calls(arguments.checks);
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  Table table({"collective", "bytes", "beside", "its us", "our us", "ratio", "of the best"});
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& name : arguments.collectives) {
    for (const std::string& size : arguments.sizes) {
      const ComparedCalls calls =
          compared_calls(from_word<Collective>(name), parse_bytes(size), group, comm);
      const Times times = measure(calls, comm, arguments);
      rows.push_back({{"collective", name},
                      {"bytes", calls.bytes},
                      {"ranks", processes.ranks()},
                      {"seconds", times}});
      for (const std::string other : {"plain", "alike"}) {
        if (!times.contains(other)) continue;
        const Ratio ratio = ratio_of(times.at("ours"), times.at(other));
        table.add({name, format_bytes(calls.bytes), other, microseconds(times.at(other)),
                   microseconds(times.at("ours")), ratio.text(),
                   fmt::format("{:.2f}", ratio.of_best)});
        rows.back()["to_" + other] = ratio.json();
      }
      if (processes.rank() == 0) fmt::print(stderr, "{} {}      \r", name, size);
    }
  }
  check_mpi(MPI_Comm_free(&comm), "MPI_Comm_free");
  if (processes.rank() != 0) return;
  fmt::print("{}", arguments.json
                       ? rows.dump(1) + "\n"
                       : fmt::format("{} processes; f32\n{}", processes.ranks(), table.text()));
}

int compare(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("The transport of processes beside plain calls of MPI, by turns");
  app.add_option("--collectives", arguments.collectives, "Left out: all")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(arguments.collectives)));
  app.add_option("--sizes", arguments.sizes, "Bytes")->delimiter(',')->capture_default_str();
  app.add_option("--rounds", arguments.rounds, "Turns of each program")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seconds", arguments.seconds, "About how long a program calls in a turn")
      ->capture_default_str();
  app.add_flag("--checks", arguments.checks, "Compare each call, as run.check_calls does");
  app.add_flag("--json", arguments.json, "All times of all rounds");
  CLI11_PARSE(app, argc, argv);
  // MPI's own sums take memory at each call. It shall not come from the system, page by page, each
  // time: whether it does depends on what the program allocated before.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const std::unique_ptr<Processes> processes = join_processes();
  if (processes == nullptr) throw Error("start it by mpirun, or by bench/mpi/ratios");
  try {
    run(arguments, *processes);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_mpi: {}\n", error.what());
    processes->abort(1);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::compare(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_mpi: {}\n", error.what());
    return 1;
  }
}
