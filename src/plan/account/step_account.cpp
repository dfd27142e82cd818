// Accounts for the time of a traced step. account_for() adds up the trace's events four times: by
// operation, block, phase and part of the step. An event's floor is
//
//   max(time of its products, its bytes / bandwidth)
//   time of its products = the time alone, if it was measured, and otherwise FLOPs / peak
//
// judge() compares a row's floors with its time and says what limits the row.

#include "plan/account/step_account.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "base/words.h"
#include "plan/account/network_calls.h"
#include "program/program.h"

namespace tessera {
namespace {

using std::chrono::nanoseconds;

constexpr double kExplainedShare = 0.5;  // of a row's time, so that a ceiling is its limit
/// A row that is faster than this multiple of the memory's bandwidth takes its operands from the
/// caches. The multiple is above 1 because the bandwidth itself varies: with the hour, and with the
/// number of streams (AdamW reaches 1.14 of the best measured loop).
constexpr double kFromCache = 1.25;
constexpr const char* kWithProducts = "operations with matrix products";

double product_flops(const StepTrace& trace, const TraceEvent& event) {
  double flops = 0;
  for (const auto& [product, runs] : event.products) {
    flops += trace.products[static_cast<size_t>(product)].flops() * static_cast<double>(runs);
  }
  return flops;
}

double stated_flops(const TraceEvent& event) { return event.flops + event.repeated_flops; }

/// The products of a step, each listed once, with the time of one run of each.
class Products {
 public:
  Products(const StepTrace& trace, const ProductTimer& timer) {
    for (const GemmShape& shape : trace.products) rows_.push_back({.product = {shape, 0}});
    for (const TraceEvent& event : trace.events) {
      for (const auto& [product, runs] : event.products) row(product).product.runs += runs;
    }
    if (!timer) return;
    for (ProductRow& row : rows_) {
      if (row.product.runs > 0) row.seconds = timer(row.product.shape);
    }
  }

  double alone_seconds(const TraceEvent& event) {
    double seconds = 0;
    for (const auto& [product, runs] : event.products) {
      seconds += row(product).seconds * static_cast<double>(runs);
    }
    return seconds;
  }

  /// Returns the products that take longest first; without times, those with the most FLOPs first.
  std::vector<ProductRow> sorted() const {
    std::vector<ProductRow> rows;
    std::ranges::copy_if(rows_, std::back_inserter(rows),
                         [](const ProductRow& row) { return row.product.runs > 0; });
    const auto weight = [](const ProductRow& row) {
      const auto runs = static_cast<double>(row.product.runs);
      return std::pair(row.seconds * runs, row.product.shape.flops() * runs);
    };
    std::ranges::stable_sort(rows, std::greater<>(), weight);
    return rows;
  }

 private:
  ProductRow& row(int product) { return rows_[static_cast<size_t>(product)]; }

  std::vector<ProductRow> rows_;
};

std::string percent(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0.0);
}

/// Sets a row's limit and its reason. Without a floor the limit stays unknown.
void judge(AccountRow& row, const Ceilings& ceilings) {
  const double floor = row.compute_floor + row.memory_floor;
  const double row_seconds = row.event_seconds();
  if (row_seconds <= 0 || floor <= 0) return;
  const auto share = [&](double seconds) { return percent(seconds, row_seconds); };
  std::vector<std::string> reasons;
  if (row.alone_seconds > 0) {
    reasons.push_back(fmt::format("products alone {}", share(row.alone_seconds)));
    if (ceilings.gemm_flops > 0) {
      reasons.back() +=
          fmt::format(", at {} of the GEMM peak",
                      percent(row.product_flops / ceilings.gemm_flops, row.alone_seconds));
    }
    // The floor is not the time alone: it leaves out events whose bytes take longer, and includes
    // FLOPs that are in no product.
    const std::string floor_share = share(row.compute_floor);
    if (row.compute_floor > 0 && floor_share != share(row.alone_seconds)) {
      reasons.push_back(fmt::format("compute floor {}", floor_share));
    }
  } else if (row.compute_floor > 0) {
    reasons.push_back(fmt::format("products at the GEMM peak {}", share(row.compute_floor)));
  }
  if (row.memory_floor > 0) {
    reasons.push_back(fmt::format("bytes at the memory's bandwidth {}", share(row.memory_floor)));
  }
  row.reason = join(reasons, "; ");
  if (floor < kExplainedShare * row_seconds) {
    row.limit = Limit::overhead;
  } else if (row.compute_floor >= row.memory_floor) {
    row.limit = Limit::compute;
  } else {
    row.limit = row.memory_floor > kFromCache * row_seconds ? Limit::cache : Limit::memory;
  }
}

/// Adds up events by name.
class AccountRows {
 public:
  AccountRows(const StepTrace& trace, const Ceilings& ceilings)
      : trace_(trace), ceilings_(ceilings) {}

  /// `beside_seconds` are those of the event in which another one is counted.
  void add(const std::string& name, const TraceEvent& event, double beside_seconds,
           double alone_seconds) {
    AccountRow& row = rows_[name];
    row.name = name;
    ++row.calls;
    row.seconds += event.duration - beside_seconds;
    row.beside_seconds += beside_seconds;
    const double in_products = product_flops(trace_, event);
    const double flops = event.products.empty() ? stated_flops(event) : in_products;
    row.flops += flops;
    row.product_flops += in_products;
    row.backward_flops += event.backward_flops;
    row.bytes += event.bytes;
    row.alone_seconds += alone_seconds;
    double compute = alone_seconds;
    if (compute == 0 && ceilings_.gemm_flops > 0) compute = flops / ceilings_.gemm_flops;
    const double memory = ceilings_.memory_bytes > 0 ? event.bytes / ceilings_.memory_bytes : 0;
    (compute >= memory ? row.compute_floor : row.memory_floor) += std::max(compute, memory);
  }

  /// Returns the rows, longest first.
  std::vector<AccountRow> judged() const {
    std::vector<AccountRow> result;
    for (const auto& [name, row] : rows_) {
      result.push_back(row);
      judge(result.back(), ceilings_);
    }
    std::ranges::stable_sort(result, std::greater<>(), &AccountRow::seconds);
    return result;
  }

 private:
  const StepTrace& trace_;
  const Ceilings& ceilings_;
  std::map<std::string, AccountRow> rows_;
};

/// Returns the name of the event's row in StepAccount::parts.
std::string_view part_of(const TraceEvent& event) {
  if (event.lane != Lane::compute) return "communication, waiting for other ranks included";
  if (event.block == "optimizer" || event.block == "data") return event.block;
  return event.products.empty() ? "operations without matrix products" : kWithProducts;
}

/// Says how much of a phase's FLOPs belong to the backward pass. The head computes its gradients
/// while its logits are in memory, so the forward pass's time includes them.
void name_backward_flops(std::vector<AccountRow>& phases) {
  for (AccountRow& row : phases) {
    if (row.backward_flops <= 0) continue;
    if (!row.reason.empty()) row.reason += "; ";
    row.reason += fmt::format("{} of its FLOPs are the backward pass's, done with the loss",
                              percent(row.backward_flops, row.flops));
  }
}

/// Splits the row of operations with products: products at stand-alone speed, and the rest.
void split_products(StepAccount& account, const StepTrace& trace) {
  const auto combined = std::ranges::find(account.parts, kWithProducts, &AccountRow::name);
  if (combined == account.parts.end() || combined->alone_seconds <= 0) return;
  AccountRow products{.name = "matrix products at stand-alone speed",
                      .seconds = combined->alone_seconds,
                      .flops = combined->product_flops,
                      .product_flops = combined->product_flops,
                      .alone_seconds = combined->alone_seconds,
                      .compute_floor = combined->alone_seconds,
                      .limit = Limit::compute};
  for (const TraceEvent& event : trace.events) {
    if (part_of(event) != kWithProducts) continue;
    for (const ProductRuns& product : event.products) products.calls += product.runs;
  }
  if (account.ceilings.gemm_flops > 0) {
    products.reason =
        fmt::format("{} of the GEMM peak",
                    percent(products.flops / account.ceilings.gemm_flops, products.seconds));
  }
  const double other_seconds = combined->seconds - combined->alone_seconds;
  *combined = {.name = "rest of the operations with matrix products",
               .calls = combined->calls,
               .seconds = other_seconds,
               .reason = other_seconds < 0
                             ? "the products were measured slower than they ran: measure where "
                               "nothing else runs"
                             : "copies, softmax, threads that wait, operands not in the cache"};
  account.parts.insert(account.parts.begin(), std::move(products));
}

/// Returns a rank's step with an event for each wait of its stage's list.
StepTrace step_with_waits(const RankTrace& rank) {
  StepTrace step = rank.step;
  for (const TimedEntry& entry : rank.list) {
    if (!is_wait(entry.entry)) continue;
    const auto& message = std::get<MessageEntry>(entry.entry);
    step.events.push_back({.name = std::string(word(message.call)),
                           .block = "messages",
                           .phase = "step",
                           .lane = message_lane(message.message.kind),
                           .start = entry.start,
                           .duration = entry.duration});
  }
  return step;
}

/// The times of a step's events in nanoseconds, in which events that follow each other do not
/// overlap.
struct CountedTime {
  std::vector<nanoseconds> beside;  ///< by event: while another one is counted (see StepAccount)
  nanoseconds covered{};            ///< by events of any lane
};

CountedTime counted_time(const StepTrace& trace) {
  struct Ends {
    nanoseconds time{};
    bool begins = false;
    size_t event = 0;  // index
  };
  std::vector<Ends> ends;
  std::vector<nanoseconds> starts;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    starts.push_back(nanoseconds_of(event.start));
    const nanoseconds end = nanoseconds_of(event.start + event.duration);
    if (end <= starts.back()) continue;
    ends.push_back({starts.back(), true, i});
    ends.push_back({end, false, i});
  }
  std::ranges::sort(ends, {},
                    [](const Ends& end) { return std::tuple(end.time, end.begins, end.event); });
  CountedTime result{.beside = std::vector<nanoseconds>(trace.events.size())};
  std::set<std::tuple<bool, nanoseconds, size_t>> under_way;  // the first one is counted
  nanoseconds now{};
  for (const auto& [time, begins, index] : ends) {
    if (!under_way.empty()) result.covered += time - now;
    for (const auto& other : under_way) {
      if (other != *under_way.begin()) result.beside[std::get<size_t>(other)] += time - now;
    }
    now = time;
    const std::tuple key(trace.events[index].lane != Lane::compute, starts[index], index);
    if (begins) {
      under_way.insert(key);
    } else {
      under_way.erase(key);
    }
  }
  return result;
}

}  // namespace

StepAccount account_for(const RankTrace& rank, const Ceilings& ceilings,
                        const ProductTimer& timer) {
  const StepTrace trace = step_with_waits(rank);
  const double seconds = trace.duration - trace.recording_seconds;
  const CountedTime counted = counted_time(trace);
  StepAccount account{.origin = trace.origin,
                      .step = trace.number,
                      .ceilings = ceilings,
                      .measured = bool(timer),
                      .seconds = seconds,
                      .idle_seconds = seconds_of(nanoseconds_of(seconds) - counted.covered)};
  Products products(trace, timer);
  AccountRows operations(trace, ceilings), blocks(trace, ceilings), phases(trace, ceilings),
      parts(trace, ceilings);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    const double beside = seconds_of(counted.beside[i]);
    const double alone = products.alone_seconds(event);
    operations.add(event.name, event, beside, alone);
    blocks.add(event.block, event, beside, alone);
    phases.add(event.phase, event, beside, alone);
    parts.add(std::string(part_of(event)), event, beside, alone);
    account.alone_seconds += alone;
    // Recomputed products are repeated work, which MFU does not count.
    if (event.phase != word(Phase::recompute)) account.useful_flops += event.flops;
    if (event.products.empty()) account.flops_in_no_product += stated_flops(event);
  }
  account.operations = operations.judged();
  account.blocks = blocks.judged();
  account.phases = phases.judged();
  account.parts = parts.judged();
  account.products = products.sorted();
  name_backward_flops(account.phases);
  split_products(account, trace);
  return account;
}

}  // namespace tessera
