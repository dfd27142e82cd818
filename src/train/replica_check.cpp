#include "train/replica_check.h"

#include <algorithm>
#include <map>
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

}  // namespace

ReplicaCheck::ReplicaCheck(const Executor& executor, int programs, const ParameterStore& store,
                           const RankControl& control)
    : executor_(executor), mesh_(executor.program(0).mesh()), control_(control) {
  std::set<std::string> names;
  std::multimap<std::string, const KeptTensor*> stored_tensors;  // by the working copy's name
  for (const KeptTensor* tensor : store.tensors(
           {Kept::weight, Kept::gradient, Kept::master, Kept::first_moment, Kept::second_moment})) {
    // Without lower precision the weights are the masters themselves: they are checked as weights.
    const bool is_weight =
        tensor->kind == Kept::master && tensor->dtype == tensor->parameter->dtype;
    if (is_weight) continue;
    kept_.push_back({tensor->name(), tensor->distribution, tensor->memory});
    names.insert(store.value_name(*tensor));
    stored_tensors.emplace(working_name(store.value_name(*tensor)), tensor);
  }
  for (int program = 0; program < programs; ++program) {
    const std::vector<ValueInfo>& values = executor.program(program).values();
    for (size_t id = 0; id < values.size(); ++id) {
      const ValueInfo& info = values[id];
      if (info.view || info.kind == ValueKind::computed || info.kind == ValueKind::input) continue;
      if (!names.insert(info.name).second) continue;
      const Tensor& value = executor.tensor(Value{static_cast<int>(id)}, program);
      const auto [first, end] = stored_tensors.equal_range(info.name);
      if (first == end) kept_.push_back({info.name, info.spec.distribution, value});
      // Checks the parameters, not the padding. No optimizer changes the unit, so it is not
      // sharded.
      for (auto copy = first; copy != end; ++copy) {
        const KeptTensor& tensor = *copy->second;
        kept_.push_back({working_name(tensor.name()), info.spec.distribution,
                         value.view(tensor.parameter->unit_offset, tensor.parameter->piece_shape)});
      }
    }
  }
}

void ReplicaCheck::check_kept() const { check(kept_); }

void ReplicaCheck::check_inputs(int program) const {
  std::vector<Leaf> leaves;
  const std::vector<ValueInfo>& values = executor_.program(program).values();
  for (size_t id = 0; id < values.size(); ++id) {
    if (values[id].kind != ValueKind::input) continue;
    leaves.push_back({values[id].name, values[id].spec.distribution,
                      executor_.tensor(Value{static_cast<int>(id)}, program)});
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
  std::string difference;
  int differing = 0;
  for (size_t i = 0; i < leaves.size(); ++i) {
    bool equal = true;
    for (const RankSet& ranks : sets_with_equal_parts(mesh_, leaves[i].distribution)) {
      std::map<uint64_t, RankSet> copies;
      for (const int rank : ranks) {
        copies[all[static_cast<size_t>(rank) * leaves.size() + i]].push_back(rank);
      }
      if (copies.size() == 1) continue;
      equal = false;
      if (!difference.empty()) continue;
      std::vector<std::string> holders;
      for (const auto& [leaf_hash, holding] : copies) holders.push_back(text_of(holding));
      std::ranges::sort(holders);
      difference = fmt::format("{} ({}) must be the same on {}, but has {} values: those of {}",
                               leaves[i].name, leaves[i].distribution.text(mesh_), text_of(ranks),
                               copies.size(), join(holders, ", of "));
    }
    differing += equal ? 0 : 1;
  }
  if (differing == 0) return;
  if (differing > 1) difference += fmt::format("; {} more differ", differing - 1);
  throw Error("{}", difference);
}

}  // namespace tessera
