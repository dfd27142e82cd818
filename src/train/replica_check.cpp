#include "train/replica_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/rank_sets.h"

namespace tessera {
namespace {

std::string text_of(const RankSet& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const int rank : ranks) text += fmt::format(" {}", rank);
  return text;
}

/// The prefix of a value's name before that of its unit: "first_moment:". None if it is not the
/// unit's.
std::optional<std::string> before_unit(const std::string& name, const std::string& unit) {
  if (!name.ends_with(unit)) return {};
  const std::string prefix = name.substr(0, name.size() - unit.size());
  if (!prefix.empty() && !prefix.ends_with(':')) return {};
  return prefix;
}

}  // namespace

ReplicaCheck::ReplicaCheck(const Executor& executor, int programs, const ParameterList& parameters,
                           const StateShards& shards, const RankControl& control)
    : executor_(executor),
      mesh_(executor.program(0).mesh()),
      parameters_(parameters),
      shards_(shards),
      rank_(executor.program(0).rank()),
      control_(control) {
  std::set<std::string> seen;
  for (int program = 0; program < programs; ++program) {
    const std::vector<ValueInfo>& values = executor.program(program).values();
    for (size_t id = 0; id < values.size(); ++id) {
      const ValueInfo& info = values[id];
      if (info.view || info.kind == ValueKind::computed || info.kind == ValueKind::input) continue;
      if (!seen.insert(info.name).second) continue;
      add(kept_, info, executor.tensor(Value{static_cast<int>(id)}, program));
    }
  }
}

/// Adds a leaf, or one for each parameter if it belongs to a unit: all of it, or what this rank has
/// of its states. So all ranks have the same leaves, and what lies between parameters is in none.
void ReplicaCheck::add(std::vector<Leaf>& leaves, const ValueInfo& info,
                       const Tensor& tensor) const {
  const std::vector<ParameterUnit>& units = parameters_.units();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const auto prefix = before_unit(info.name, units[unit].name);
    if (!prefix) continue;
    const bool cut = is_cut(unit, info.spec.distribution);
    for (size_t i = 0; i < parameters_.specs().size(); ++i) {
      const ParameterSpec& spec = parameters_.specs()[i];
      if (spec.unit_index != static_cast<int>(unit)) continue;
      const ElementRun own =
          cut ? shards_.held(i, rank_) : ElementRun{0, spec.piece_shape.elements()};
      const int64_t first = cut ? shards_.first_of_unit(unit, rank_) : 0;
      const int64_t begin = own.length == 0 ? 0 : spec.unit_offset + own.place - first;
      leaves.push_back(
          {*prefix + spec.name, info.spec.distribution, tensor.view(begin, {own.length})});
    }
    return;
  }
  leaves.push_back({info.name, info.spec.distribution, tensor});
}

/// Whether a value of a unit is this rank's piece of its states.
bool ReplicaCheck::is_cut(size_t unit, const Distribution& distribution) const {
  const FlatPieces& pieces = shards_.of_unit(unit, rank_);
  return pieces.cut() && distribution.on(pieces.axes.front()) == pieces.type();
}

void ReplicaCheck::check_kept() const { check(kept_); }

void ReplicaCheck::check_inputs(int program) const {
  std::vector<Leaf> leaves;
  const std::vector<ValueInfo>& values = executor_.program(program).values();
  for (size_t id = 0; id < values.size(); ++id) {
    if (values[id].kind != ValueKind::input) continue;
    add(leaves, values[id], executor_.tensor(Value{static_cast<int>(id)}, program));
  }
  check(leaves);
}

void ReplicaCheck::check(const std::vector<Leaf>& leaves) const {
  std::vector<uint64_t> own;
  for (const Leaf& leaf : leaves) {
    const Tensor host = on_host(leaf.tensor);
    own.push_back(hash({host.raw(), static_cast<size_t>(host.bytes())}));
  }
  const std::vector<uint64_t> all = control_.gather(own);
  std::string first;
  int differ = 0;
  for (size_t i = 0; i < leaves.size(); ++i) {
    bool equal = true;
    for (const RankSet& ranks : sets_with_equal_parts(mesh_, leaves[i].distribution)) {
      std::map<uint64_t, RankSet> copies;
      for (const int rank : ranks) {
        copies[all[static_cast<size_t>(rank) * leaves.size() + i]].push_back(rank);
      }
      if (copies.size() == 1) continue;
      equal = false;
      if (!first.empty()) continue;
      std::vector<std::string> holders;
      for (const auto& [bytes, holding] : copies) holders.push_back(text_of(holding));
      std::ranges::sort(holders);
      first = fmt::format("{} ({}) must be the same on {}, but has {} values: those of {}",
                          leaves[i].name, leaves[i].distribution.text(mesh_), text_of(ranks),
                          copies.size(), join(holders, ", of "));
    }
    differ += equal ? 0 : 1;
  }
  if (differ == 0) return;
  if (differ > 1) first += fmt::format("; {} more differ", differ - 1);
  throw Error("{}", first);
}

}  // namespace tessera
