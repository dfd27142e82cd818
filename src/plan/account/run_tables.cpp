// Shows the account of all ranks: the passes, the calls of other ranks, and the critical path.

#include "plan/account/run_tables.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/words.h"

namespace tessera {
namespace {

using RunJson = nlohmann::ordered_json;
using std::chrono::nanoseconds;

constexpr size_t kRunsShown = 10;

std::string in_milliseconds(nanoseconds time) { return milliseconds(seconds_of(time)); }

/// Returns the name of some axes in tables.
std::string axes_name(const std::string& axes) { return axes.empty() ? "not recorded" : axes; }

/// Returns the account of the passes: a line and a table.
std::string passes_text(const RunAccount& account) {
  const TracedSchedule& schedule = account.schedule;
  const size_t ranks = account.ranks.size();
  const auto left_out = static_cast<size_t>(account.ranks_left_out);
  std::string text = fmt::format(
      "passes of {} ranks: {} ms; stages: {}{}, schedule: {}, micro-batches: {}",
      left_out > 0 ? fmt::format("{} of {}", ranks, ranks + left_out) : fmt::format("{}", ranks),
      milliseconds(account.seconds), left_out > 0 ? "at least " : "", account.stages, schedule.name,
      schedule.micro_batches);
  if (account.bubble) text += fmt::format("; measured bubble: {:.1f} %", 100 * *account.bubble);
  text += "\n";
  if (account.clock_uncertainty > 0) {
    text +=
        fmt::format("the ranks' clocks agree to {}\n", format_seconds(account.clock_uncertainty));
  }
  Table table({"rank", "stage", "busy ms", "idle ms", "waits ms", "idle of busy"});
  for (const RankTime& rank : account.ranks) {
    const double ratio = rank.busy_seconds > 0 ? rank.idle_seconds / rank.busy_seconds : 0;
    table.add({std::to_string(rank.rank), std::to_string(rank.stage),
               milliseconds(rank.busy_seconds), milliseconds(rank.idle_seconds),
               milliseconds(rank.wait_seconds), fmt::format("{:.1f} %", 100 * ratio)});
  }
  return text + table.text();
}

/// Returns what is not known of the calls, and what the times do not have, in lines.
std::string network_notes(const NetworkAccount& account) {
  std::string text;
  for (const auto& [reason, calls] : account.unmatched) {
    text += fmt::format("calls whose last rank is not known: {}; {}\n", calls, word(reason));
  }
  if (account.calls_in_compute > 0) {
    text +=
        fmt::format("operations that call other ranks while they compute, and are not listed: {}\n",
                    account.calls_in_compute);
  }
  return text;
}

/// Returns the calls by axes: lines and a table of the mean of the ranks.
std::string network_text(const NetworkAccount& account) {
  const std::vector<NetworkTime> sums = account.sums();
  const auto ranks = static_cast<double>(account.ranks.size());
  const bool all_known = account.unmatched.empty();
  std::string text = "calls of other ranks, the mean of the ranks";
  if (account.uncertainty > 0) {
    text += fmt::format("; an arrival is known to {}", format_seconds(account.uncertainty));
  }
  text += "\n" + network_notes(account);
  std::vector<std::string> header{"axes",      "calls",      "MB sent",    "ms",
                                  "hidden ms", "exposed ms", "waiting ms", "transfer ms"};
  if (!all_known) header.emplace_back("not told apart ms");
  Table table(header);
  for (const NetworkTime& sum : sums) {
    const auto mean = [&](nanoseconds time) { return milliseconds(seconds_of(time) / ranks); };
    std::vector<std::string> row{axes_name(sum.axes),
                                 fmt::format("{:.1f}", static_cast<double>(sum.calls) / ranks),
                                 fmt::format("{:.2f}", sum.bytes / ranks / 1e6),
                                 mean(sum.total),
                                 mean(sum.hidden),
                                 mean(sum.exposed()),
                                 mean(sum.waiting),
                                 mean(sum.transferring)};
    if (!all_known) row.push_back(mean(sum.not_told_apart));
    table.add(row);
  }
  return text + table.text();
}

/// Returns the longest runs of a path, in the order of time.
std::vector<PathRun> longest_runs(const CriticalPath& path) {
  std::vector<PathRun> runs = path.runs;
  std::ranges::stable_sort(runs, std::greater<>(), &PathRun::time);
  runs.resize(std::min(runs.size(), kRunsShown));
  std::ranges::sort(runs, {}, &PathRun::start);
  return runs;
}

std::string path_text(const CriticalPath& path) {
  const auto share = [&](nanoseconds time) {
    const double whole = seconds_of(path.time());
    return fmt::format("{:.1f} %", whole > 0 ? 100 * seconds_of(time) / whole : 0.0);
  };
  std::string text = fmt::format("critical path: {} ms; changes of ranks: {}\n",
                                 in_milliseconds(path.time()), path.rank_changes());
  if (path.unmatched > 0) {
    text += fmt::format("calls on it whose last rank is not known: {}; it stays on their rank\n",
                        path.unmatched);
  }
  Table rows({"on the path", "of", "ms", "share"});
  for (const PathRow& row : path.rows) {
    const std::string name = row.kind == PathKind::network ? axes_name(row.name) : row.name;
    rows.add({std::string(word(row.kind)), name, in_milliseconds(row.time), share(row.time)});
  }
  text += rows.text();
  if (path.rank_changes() == 0) return text;
  text += path.runs.size() > kRunsShown
              ? fmt::format("\nits {} longest runs on one rank\n", kRunsShown)
              : "\nits runs on one rank\n";
  Table runs({"rank", "from ms", "to ms", "ms", "compute ms", "network ms", "idle ms"});
  for (const PathRun& run : longest_runs(path)) {
    std::vector<std::string> row{std::to_string(run.rank), in_milliseconds(run.start),
                                 in_milliseconds(run.end), in_milliseconds(run.time())};
    for (const nanoseconds time : run.by_kind) row.push_back(in_milliseconds(time));
    runs.add(row);
  }
  return text + runs.text();
}

RunJson network_time_json(const NetworkTime& time) {
  return {{"axes", time.axes},
          {"calls", time.calls},
          {"bytes_sent", time.bytes},
          {"seconds", seconds_of(time.total)},
          {"hidden_seconds", seconds_of(time.hidden)},
          {"exposed_seconds", seconds_of(time.exposed())},
          {"waiting_seconds", seconds_of(time.waiting)},
          {"transfer_seconds", seconds_of(time.transferring)},
          {"not_told_apart_seconds", seconds_of(time.not_told_apart)}};
}

RunJson network_json(const NetworkAccount& account) {
  RunJson ranks = RunJson::array();
  for (const RankNetwork& rank : account.ranks) {
    RunJson by_axes = RunJson::array();
    for (const NetworkTime& time : rank.by_axes) by_axes.push_back(network_time_json(time));
    by_axes.push_back(network_time_json(rank.all));
    ranks.push_back({{"rank", rank.rank}, {"axes", by_axes}});
  }
  RunJson unmatched = RunJson::array();
  for (const auto& [reason, calls] : account.unmatched) {
    unmatched.push_back({{"reason", word(reason)}, {"calls", calls}});
  }
  return {{"uncertainty_seconds", account.uncertainty},
          {"calls_in_compute", account.calls_in_compute},
          {"calls_of_unknown_last_rank", unmatched},
          {"ranks", ranks}};
}

RunJson path_json(const CriticalPath& path) {
  RunJson rows = RunJson::array();
  for (const PathRow& row : path.rows) {
    rows.push_back({{"kind", word(row.kind)}, {"of", row.name}, {"seconds", seconds_of(row.time)}});
  }
  RunJson runs = RunJson::array();
  for (const PathRun& run : path.runs) {
    RunJson entry{{"rank", run.rank},
                  {"start_seconds", seconds_of(run.start)},
                  {"end_seconds", seconds_of(run.end)}};
    for (size_t kind = 0; kind < kPathKinds; ++kind) {
      entry[fmt::format("{}_seconds", word(static_cast<PathKind>(kind)))] =
          seconds_of(run.by_kind.at(kind));
    }
    runs.push_back(entry);
  }
  return {{"seconds", seconds_of(path.time())},
          {"rank_changes", path.rank_changes()},
          {"calls_of_unknown_last_rank", path.unmatched},
          {"rows", rows},
          {"runs", runs}};
}

}  // namespace

std::string milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

std::string run_account_text(const RunAccount& account) {
  return fmt::format("{}\n{}\n{}", passes_text(account), network_text(account.network),
                     path_text(account.path));
}

nlohmann::ordered_json run_account_json(const RunAccount& account) {
  RunJson ranks = RunJson::array();
  for (const RankTime& rank : account.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"stage", rank.stage},
                     {"busy_seconds", rank.busy_seconds},
                     {"idle_seconds", rank.idle_seconds},
                     {"wait_seconds", rank.wait_seconds}});
  }
  RunJson bubble;  // null if there is none
  if (account.bubble) bubble = *account.bubble;
  return {{"schedule", account.schedule.name},
          {"ranks_left_out", account.ranks_left_out},
          {"stages", account.stages},
          {"micro_batches", account.schedule.micro_batches},
          {"seconds", account.seconds},
          {"bubble", bubble},
          {"clock_uncertainty_seconds", account.clock_uncertainty},
          {"ranks", ranks},
          {"network", network_json(account.network)},
          {"critical_path", path_json(account.path)}};
}

}  // namespace tessera
