#include "plan/node_seconds.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "base/error.h"
#include "base/words.h"
#include "comm/call_list.h"
#include "program/labels.h"

// A node of the compute lane takes as long as the longer of its products and its bytes. A node that
// communicates takes the time of its calls (Operation::list_calls()), one after the other.

namespace tessera {
namespace {

/// Returns the line t = latency + bytes · per_byte with the least sum of the squared relative
/// errors. Neither number is below 0.
std::pair<double, double> fit_line(std::span<const std::pair<double, double>> times) {
  // With weights 1 / t², the normal equations of both numbers.
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const auto& [bytes, seconds] : times) {
    const double weight = 1 / (seconds * seconds);
    w += weight;
    wx += weight * bytes;
    wxx += weight * bytes * bytes;
    wt += weight * seconds;
    wxt += weight * bytes * seconds;
  }
  const double determinant = w * wxx - wx * wx;
  if (determinant > 1e-9 * w * wxx) {
    const double latency = (wt * wxx - wxt * wx) / determinant;
    const double per_byte = (w * wxt - wx * wt) / determinant;
    if (latency >= 0 && per_byte >= 0) return {latency, per_byte};
    if (per_byte < 0) return {wt / w, 0};
  }
  return {0, wxt / wxx};
}

/// Returns the layout of a product in terms of GEMM: see GemmLayout.
GemmLayout layout_of(const MatrixProduct& product) {
  if (!product.first_ends) return GemmLayout::weight_gradient;
  return product.second_ends ? GemmLayout::forward : GemmLayout::input_gradient;
}

}  // namespace

NodeSeconds::NodeSeconds(const Hardware& hardware, std::string origin, const Target& target)
    : origin_(std::move(origin)), target_(target), hardware_(hardware) {
  // The measured times of a collective, by its links and the number of ranks.
  std::map<std::pair<Links, int>, std::vector<std::pair<double, double>>> times;
  for (const CollectiveRate& rate : hardware.collectives) {
    const Links links{rate.collective, rate.ranks.kind, rate.ranks.machines > 1};
    times[{links, rate.ranks.count}].emplace_back(static_cast<double>(rate.bytes),
                                                  rate.median_seconds);
  }
  for (const auto& [key, measured] : times) {
    const auto& [links, ranks] = key;
    const auto [latency, per_byte] = fit_line(measured);
    lines_[links].push_back({ranks, latency, per_byte});
  }
}

double NodeSeconds::rate(const std::function<double(const Hardware&)>& find) const {
  try {
    return find(hardware_);
  } catch (const Error& error) {
    throw Error("{}: {}", origin_, error.what());
  }
}

const GemmRate& NodeSeconds::nearest(DType dtype, GemmLayout layout, double m, double n,
                                     double k) const {
  const auto has_layout = [&](const GemmRate& rate) {
    return rate.dtype == dtype && rate.layout == layout;
  };
  const bool only_layout = std::ranges::any_of(hardware_.gemms, has_layout);
  const auto squared = [](double ratio) { return std::log(ratio) * std::log(ratio); };
  const GemmRate* best = nullptr;
  double best_distance = 0;
  for (const GemmRate& rate : hardware_.gemms) {
    if (rate.dtype != dtype || (only_layout && rate.layout != layout)) continue;
    const double distance = squared(m / static_cast<double>(rate.m)) +
                            squared(n / static_cast<double>(rate.n)) +
                            squared(k / static_cast<double>(rate.k));
    if (best != nullptr && distance >= best_distance) continue;
    best = &rate;
    best_distance = distance;
  }
  if (best == nullptr) {
    throw Error("{} has no matrix product of {}; measure them with `tessera bench gemm`", origin_,
                dtype_name(dtype));
  }
  return *best;
}

double NodeSeconds::product(DType dtype, GemmLayout layout, double m, double n, double k) const {
  if (m == 0 || n == 0 || k == 0) return 0;
  return 2 * m * n * k / nearest(dtype, layout, m, n, k).median;
}

double NodeSeconds::collective(Collective collective, double bytes,
                               const CollectiveRanks& ranks) const {
  const bool several = ranks.machines > 1;
  auto found = lines_.find({collective, ranks.kind, several});
  if (found == lines_.end() && ranks.kind == RankKind::processes && !several) {
    found = lines_.find({collective, RankKind::threads, several});
  }
  if (found == lines_.end()) {
    throw Error(
        "{} has no times of {} among {} of {}; measure them with `tessera bench collectives "
        "--hardware {}`",
        origin_, word(collective), word(ranks.kind), several ? "several machines" : "one machine",
        origin_);
  }
  const auto distance = [&](const Line& line) {
    return std::abs(std::log(static_cast<double>(line.ranks) / ranks.count));
  };
  const Line& line = *std::ranges::min_element(found->second, {}, distance);
  // Per byte that a rank sends, the time does not depend on the number of ranks.
  const double sent =
      bytes * sent_share(collective, ranks.count) / sent_share(collective, line.ranks);
  return line.latency + sent * line.per_byte;
}

bool NodeSeconds::knows_calls(const Mesh& mesh) const {
  const MeshLevel* const machine = mesh.find_level(kNode);
  const int of_machine = machine == nullptr ? mesh.ranks() : machine->ranks;
  const auto knows = [&](bool several) {
    return std::ranges::any_of(
        lines_, [&](const auto& entry) { return std::get<bool>(entry.first) == several; });
  };
  return (of_machine == 1 || knows(false)) && (of_machine == mesh.ranks() || knows(true));
}

double NodeSeconds::operator()(const Program& program, const Node& node) const {
  return work(program, node) + calls(program, node);
}

double NodeSeconds::work(const Program& program, const Node& node) const {
  if (node.operation->lane() != Lane::compute) return 0;
  const Cost cost = node_cost(program, node);
  const double flops = cost.flops + cost.repeated_flops;
  double seconds = 0;
  if (cost.bytes > 0) seconds = cost.bytes / rate(&Hardware::memory_bandwidth);
  if (flops == 0) return seconds;
  const std::vector<int> updated = node.operation->updated_inputs();
  std::vector<Shape> operands;
  std::optional<DType> dtype;
  const std::vector<Spec> inputs = expected_specs(program, node.inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::ranges::find(updated, static_cast<int>(i)) != updated.end()) continue;
    operands.push_back(inputs[i].shape);
    if (!dtype && is_floating(inputs[i].dtype)) dtype = inputs[i].dtype;
  }
  if (!dtype) return seconds;
  const Labels labels = parse_labels(node.operation->labels(program.specs(node.inputs)));
  double in_products = 0, of_labels = 0;
  for (const MatrixProduct& part : matrix_products(labels, operands)) {
    in_products +=
        part.count * product(*dtype, layout_of(part), part.rows, part.columns, part.terms);
    of_labels += part.flops();
  }
  // The rest has no shape that is known here.
  if (flops > of_labels) {
    const double peak = rate([&](const Hardware& hardware) { return hardware.gemm_peak(*dtype); });
    in_products += (flops - of_labels) / peak;
  }
  return std::max(seconds, in_products);
}

double NodeSeconds::calls(const Program& program, const Node& node) const {
  const std::vector<std::vector<Axis>> groups = node.operation->group_axes();
  if (groups.empty()) return 0;
  const Mesh& mesh = program.mesh();
  const MeshLevel* const machine = mesh.find_level(kNode);
  std::vector<CallList> lists;
  std::vector<CollectiveRanks> ranks;
  for (const std::vector<Axis>& axes : groups) {
    const std::vector<int> members =
        mesh.group(program.rank(), axes, node.operation->group_stages());
    std::set<int64_t> machines;
    for (const int rank : members) machines.insert(machine == nullptr ? 0 : rank / machine->ranks);
    ranks.push_back({.kind = RankKind::processes,
                     .count = static_cast<int>(members.size()),
                     .machines = static_cast<int>(machines.size())});
    const auto own = std::ranges::find(members, program.rank()) - members.begin();
    lists.emplace_back(members, static_cast<int>(own)).begin_part();
  }
  std::vector<CallList*> pointers;
  for (CallList& list : lists) pointers.push_back(&list);
  node.operation->list_calls({.target = target_,
                              .inputs = program.specs(node.inputs),
                              .outputs = program.specs(node.outputs),
                              .name = program.name_of(node),
                              .groups = pointers});
  const Cost cost = node_cost(program, node);
  double seconds = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (ranks[i].count == 1) continue;
    const auto wire = std::ranges::find(cost.wire, groups[i], &WireBytes::axes);
    double messages = 0;  // the bytes that this rank sends in them
    for (const Fingerprint& call : lists[i].calls()) {
      double bytes = static_cast<double>(call.shape.elements() * dtype_size(call.dtype));
      if (call.collective == Collective::message) {
        if (call.from == program.rank()) messages += bytes;
        continue;
      }
      if (call.layout_after != 0) bytes /= ranks[i].count;  // the shape is that of the whole
      Collective kind = call.collective;
      if (kind == Collective::all_to_all_rows) {
        // How many rows go is known at run time; the cost has those of an even load.
        kind = Collective::all_to_all;
        const double sent = wire == cost.wire.end() ? 0 : wire->bytes;
        bytes = sent * ranks[i].count / (ranks[i].count - 1);
      }
      seconds += collective(kind, bytes, ranks[i]);
    }
    if (messages > 0) seconds += collective(Collective::message, messages, ranks[i]);
  }
  return seconds;
}

double NodeSeconds::messages(const Program& program, std::span<const Value> values,
                             int peer) const {
  const MeshLevel* const machine = program.mesh().find_level(kNode);
  const bool several =
      machine != nullptr && program.rank() / machine->ranks != peer / machine->ranks;
  const CollectiveRanks ranks{.kind = RankKind::processes, .count = 2, .machines = several ? 2 : 1};
  double seconds = 0;
  for (const Value value : values) {
    const auto bytes = static_cast<double>(program.spec(value).bytes());
    seconds += collective(Collective::message, bytes, ranks);
  }
  return seconds;
}

}  // namespace tessera
