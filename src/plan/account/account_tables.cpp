// Shows the account of a step. account_text() writes a heading, a table of the ranks if there are
// several, a table for each list of rows and one of the matrix products. account_json() writes the
// same as JSON.

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/gemm_json.h"
#include "plan/account/run_tables.h"
#include "plan/account/step_account.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kGiga = 1e9;
constexpr size_t kProductsShown = 12;

std::string share(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}
std::string rate(double amount, double seconds) {
  if (amount <= 0 || seconds <= 0) return "";
  const double giga = amount / seconds / kGiga;
  return fmt::format("{:.{}f}", giga, giga < 10 ? 1 : 0);
}

/// Returns a list of rows as a table. The total below it is the same for all lists.
std::string rows_table(const char* title, const std::vector<AccountRow>& rows,
                       const StepAccount& account) {
  const bool lanes_overlap = std::ranges::any_of(
      account.operations, [](const AccountRow& row) { return row.beside_seconds > 0; });
  std::vector<std::string> header{title, "calls", "ms"};
  if (lanes_overlap) header.emplace_back("beside ms");
  header.insert(header.end(), {"share", "GFLOP/s", "GB/s"});
  if (account.measured) header.emplace_back("alone ms");
  header.insert(header.end(), {"limit", "reason"});
  Table table(header);
  const auto add = [&](const AccountRow& row) {
    std::vector<std::string> cells{row.name, row.calls > 0 ? fmt::format("{}", row.calls) : "",
                                   milliseconds(row.seconds)};
    if (lanes_overlap) {
      cells.push_back(row.beside_seconds > 0 ? milliseconds(row.beside_seconds) : "");
    }
    cells.insert(cells.end(),
                 {share(row.seconds, account.seconds), rate(row.flops, row.event_seconds()),
                  rate(row.bytes, row.event_seconds())});
    if (account.measured) {
      cells.push_back(row.alone_seconds > 0 ? milliseconds(row.alone_seconds) : "");
    }
    cells.emplace_back(word(row.limit));
    cells.push_back(row.reason);
    table.add(cells);
  };
  for (const AccountRow& row : rows) add(row);
  add({.name = "idle",
       .seconds = account.idle_seconds,
       .reason = "between events: taking and giving back memory, loops of the step"});
  AccountRow total{
      .name = "step", .seconds = account.seconds, .alone_seconds = account.alone_seconds};
  for (const AccountRow& row : account.operations) {
    total.flops += row.flops;
    total.bytes += row.bytes;
  }
  add(total);
  return table.text();
}

std::string operands_text(const GemmShape& shape) {
  return fmt::format("{} {}{}{}", shape.transpose_a ? "At" : "A", shape.transpose_b ? "Bt" : "B",
                     shape.packed_b ? " packed" : "", shape.accumulate ? ", adds" : "");
}

std::string products_table(const StepAccount& account) {
  std::vector<std::string> header{
      "product (m x n x k)", "type", "layout", "threads", "runs", "GFLOP"};
  if (account.measured) header.insert(header.end(), {"alone GFLOP/s", "alone ms", "of the step"});
  Table table(header);
  double seconds = 0;
  for (size_t i = 0; i < std::min(kProductsShown, account.products.size()); ++i) {
    const ProductRow& row = account.products[i];
    const GemmShape& shape = row.product.shape;
    const auto runs = static_cast<double>(row.product.runs);
    std::vector<std::string> cells{
        fmt::format("{} x {} x {}", shape.m, shape.n, shape.k),
        fmt::format("{} to {}", dtype_name(shape.input), dtype_name(shape.output)),
        operands_text(shape),
        shape.threads == 1 ? fmt::format("1 each of {}", account.origin.threads)
                           : fmt::format("{}", shape.threads),
        fmt::format("{}", row.product.runs),
        fmt::format("{:.2f}", runs * shape.flops() / kGiga)};
    if (account.measured) {
      cells.insert(cells.end(), {rate(shape.flops(), row.seconds), milliseconds(runs * row.seconds),
                                 share(runs * row.seconds, account.seconds)});
      seconds += runs * row.seconds;
    }
    table.add(cells);
  }
  std::string text = table.text();
  if (account.products.size() > kProductsShown) {
    text += fmt::format("({} other products", account.products.size() - kProductsShown);
    if (account.measured) {
      text += fmt::format(": {} ms alone", milliseconds(account.alone_seconds - seconds));
    }
    text += "; --json has them all)\n";
  }
  return text;
}

std::string ceiling_text(double value, const char* unit, const std::string& source) {
  if (value <= 0) return "not known";
  return fmt::format("{:.4g} {} ({})", value / kGiga, unit, source);
}

std::string machine_name(const TraceOrigin& origin) {
  if (origin.device == Device::cpu) return origin.processor;
  return fmt::format("{}, beside {}", origin.accelerator, origin.processor);
}

std::string alone_text(const StepAccount& account) {
  if (account.measured) return share(account.alone_seconds, account.seconds) + " of the step";
  if (account.origin.device != Device::cpu) return "not measured";
  return "not measured; --measure times each of them on this machine";
}

std::string heading(const StepAccount& account) {
  const TraceOrigin& origin = account.origin;
  const Ceilings& ceilings = account.ceilings;
  const std::string rank = account.run ? fmt::format(" on rank {}", origin.rank) : "";
  std::string text = fmt::format(
      "step {}{}: {} ms, {} tokens, {} tokens/s; {}, {} threads, {}\n", account.step, rank,
      milliseconds(account.seconds), origin.tokens,
      format_count(account.seconds > 0 ? static_cast<double>(origin.tokens) / account.seconds : 0),
      word(origin.precision), origin.threads, machine_name(origin));
  text += fmt::format("ceilings: GEMM {}, memory {}\n",
                      ceiling_text(ceilings.gemm_flops, "GFLOP/s", ceilings.gemm_source),
                      ceiling_text(ceilings.memory_bytes, "GB/s", ceilings.memory_source));
  text += fmt::format("useful: {} GFLOP/s", rate(account.useful_flops, account.seconds));
  if (ceilings.gemm_flops > 0) {
    text +=
        fmt::format(", MFU {}", share(account.useful_flops / ceilings.gemm_flops, account.seconds));
  }
  text += "\nown matrix products at stand-alone speed: ";
  text += alone_text(account) + "\n";
  if (account.flops_in_no_product > 0) {
    text += fmt::format("{}FLOP are of kernels with loops of their own and in no product\n",
                        format_count(account.flops_in_no_product));
  }
  return text;
}

OrderedJson rows_json(const std::vector<AccountRow>& rows, const StepAccount& account) {
  OrderedJson list = OrderedJson::array();
  for (const AccountRow& row : rows) {
    OrderedJson entry{{"name", row.name},
                      {"calls", row.calls},
                      {"seconds", row.seconds},
                      {"share", account.seconds > 0 ? row.seconds / account.seconds : 0},
                      {"flops", row.flops},
                      {"bytes", row.bytes},
                      {"compute_floor_seconds", row.compute_floor},
                      {"memory_floor_seconds", row.memory_floor},
                      {"limit", word(row.limit)},
                      {"reason", row.reason}};
    if (row.backward_flops > 0) entry["backward_flops"] = row.backward_flops;
    if (row.beside_seconds > 0) entry["beside_seconds"] = row.beside_seconds;
    if (account.measured) entry["alone_seconds"] = row.alone_seconds;
    list.push_back(entry);
  }
  return list;
}

OrderedJson products_json(const StepAccount& account) {
  OrderedJson list = OrderedJson::array();
  for (const ProductRow& row : account.products) {
    OrderedJson entry = product_json(row.product.shape);
    entry["runs"] = row.product.runs;
    if (account.measured) entry["alone_seconds_each"] = row.seconds;
    list.push_back(entry);
  }
  return list;
}

OrderedJson ceiling_json(double value, const std::string& source) {
  if (value <= 0) return nullptr;
  return {{"per_second", value}, {"source", source}};
}

}  // namespace

std::string account_text(const StepAccount& account) {
  std::string text = heading(account);
  if (account.run) text += fmt::format("\n{}", run_account_text(*account.run));
  for (const auto& [title, rows] : {std::pair("part", &account.parts),
                                    {"block", &account.blocks},
                                    {"pass", &account.phases},
                                    {"operation", &account.operations}}) {
    text += fmt::format("\n{}", rows_table(title, *rows, account));
  }
  if (!account.products.empty()) text += fmt::format("\n{}", products_table(account));
  return text;
}

std::string account_json(const StepAccount& account) {
  const TraceOrigin& origin = account.origin;
  OrderedJson json{
      {"step", account.step},
      {"rank", origin.rank},
      {"processor", origin.processor},
      {"device", word(origin.device)},
      {"accelerator", origin.accelerator},
      {"threads", origin.threads},
      {"precision", origin.precision},
      {"tokens", origin.tokens},
      {"seconds", account.seconds},
      {"idle_seconds", account.idle_seconds},
      {"useful_flops", account.useful_flops},
      {"flops_in_no_product", account.flops_in_no_product},
      {"gemm_ceiling", ceiling_json(account.ceilings.gemm_flops, account.ceilings.gemm_source)},
      {"memory_ceiling",
       ceiling_json(account.ceilings.memory_bytes, account.ceilings.memory_source)}};
  if (account.measured) json["alone_seconds"] = account.alone_seconds;
  json["parts"] = rows_json(account.parts, account);
  json["blocks"] = rows_json(account.blocks, account);
  json["passes"] = rows_json(account.phases, account);
  json["operations"] = rows_json(account.operations, account);
  json["products"] = products_json(account);
  if (account.run) json["run"] = run_account_json(*account.run);
  return json.dump(1) + "\n";
}

}  // namespace tessera
