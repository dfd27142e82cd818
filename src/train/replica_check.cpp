#include "train/replica_check.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/rank_sets.h"
#include "config/mesh_of.h"

namespace tessera {
namespace {

constexpr std::initializer_list<Kept> kChecked{Kept::weight, Kept::gradient, Kept::master,
                                               Kept::first_moment, Kept::second_moment};

/// The lane of checks within the work of the programs, with which they end.
constexpr std::string_view kInputsLane = "inputs";

uint64_t hash_of(const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  return hash({host.raw(), static_cast<size_t>(host.bytes())});
}

/// Returns the hash of numbers, and of what was hashed before them.
uint64_t hash_with(uint64_t before, const std::vector<int32_t>& numbers) {
  const std::array both{before, hash(std::as_bytes(std::span(numbers)))};
  return hash(std::as_bytes(std::span(both)));
}

std::string text_of(const RankSet& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const int rank : ranks) text += fmt::format(" {}", rank);
  return text;
}

}  // namespace

ReplicaCheck::ReplicaCheck(Executor& executor, int programs, const ParameterStore& store,
                           const RankControl& control)
    : executor_(executor),
      mesh_(executor.program(0).mesh()),
      control_(control),
      stage_control_(control.within_stage(kControlLane)),
      inputs_control_(control.within_stage(kInputsLane)) {
  // A main gradient is left out: of one whose sum is shared out only this rank's piece is defined.
  for (const KeptTensor* tensor : store.tensors_of_all_stages(
           {Kept::weight, Kept::master, Kept::first_moment, Kept::second_moment})) {
    const std::vector<int>& stages = store.stages(*tensor);
    if (stages.size() > 1) copies_.push_back({tensor->name(), stages, tensor->memory});
  }
  std::set<std::string> names;
  std::multimap<std::string, const KeptTensor*> stored_tensors;  // by the working copy's name
  for (const KeptTensor* tensor : store.tensors(kChecked)) {
    // Where the weights are the masters themselves, they are checked as weights.
    const bool is_weight =
        tensor->kind == Kept::master &&
        !store.shard().has_masters(static_cast<size_t>(tensor->parameter->unit_index));
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

void ReplicaCheck::check_kept() const {
  executor_.synchronize();
  const std::optional<std::string> within = difference(kept_, stage_control_);
  const std::optional<std::string> between = difference_between_stages();
  const std::optional<std::string> any = control_.any_text(within ? within : between);
  if (any) throw Error("{}", *any);
}

void ReplicaCheck::check_inputs(int program, int frame) const {
  std::vector<Leaf> leaves;
  const Segment first = executor_.plan().programs[static_cast<size_t>(program)].order.front();
  for (const Value input : executor_.inputs(first, program)) {
    const ValueInfo& info = executor_.program(program).info(input);
    leaves.push_back({info.name, info.spec.distribution, executor_.tensor(input, program, frame)});
  }
  const std::optional<std::string> own = difference(leaves, inputs_control_);
  if (own) throw Error("{}", *own);
}

void ReplicaCheck::check_batches(std::span<const Batch> batches) const {
  uint64_t own = 0;
  for (const Batch& batch : batches) {
    own = hash_with(own, batch.tokens);
    own = hash_with(own, batch.targets);
    own = hash_with(own, batch.positions);
    own = hash_with(own, batch.document_starts);
  }
  const std::vector<uint64_t> all = control_.gather(std::array{own});
  std::map<int64_t, int> firsts;  // by data rank
  for (int rank = 0; rank < std::ssize(all); ++rank) {
    const int first = firsts.try_emplace(data_rank({mesh_, rank}), rank).first->second;
    if (all[static_cast<size_t>(rank)] == all[static_cast<size_t>(first)]) continue;
    throw Error("the batches of a step must be the same on ranks {} and {}, but are not", first,
                rank);
  }
}

/// Returns a text about the first leaf whose copies on ranks of this stage differ, the same on all
/// of them.
std::optional<std::string> ReplicaCheck::difference(const std::vector<Leaf>& leaves,
                                                    const RankControl& stage) const {
  std::vector<uint64_t> own;
  for (const Leaf& leaf : leaves) own.push_back(hash_of(leaf.tensor));
  const std::vector<uint64_t> all = stage.gather(own);
  const int own_stage = mesh_.stage(control_.rank());
  const std::vector<int> stage_ranks = mesh_.group(control_.rank(), mesh_.axes_of(MeshView::dense));
  std::string difference;
  int differing = 0;
  for (size_t i = 0; i < leaves.size(); ++i) {
    bool equal = true;
    for (const RankSet& ranks : sets_with_equal_parts(mesh_, leaves[i].distribution)) {
      if (mesh_.stage(ranks.front()) != own_stage) continue;
      std::map<uint64_t, RankSet> copies;
      for (const int rank : ranks) {
        const auto position = std::ranges::lower_bound(stage_ranks, rank) - stage_ranks.begin();
        copies[all[static_cast<size_t>(position) * leaves.size() + i]].push_back(rank);
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
  if (differing == 0) return std::nullopt;
  if (differing > 1) difference += fmt::format("; {} more differ", differing - 1);
  return difference;
}

/// Returns a text about the first tensor of which this rank's copy differs from that of the rank
/// with its coordinates in another stage. All ranks call it.
std::optional<std::string> ReplicaCheck::difference_between_stages() const {
  if (copies_.empty()) return std::nullopt;
  std::vector<uint64_t> own;
  for (const StageCopies& copy : copies_) {
    own.push_back(copy.tensor.defined() ? hash_of(copy.tensor) : 0);
  }
  const std::vector<uint64_t> all = control_.gather(own);
  const std::array axes{mesh_.pipeline()};
  const std::vector<int> group = mesh_.group(control_.rank(), axes);  // by stage
  for (size_t i = 0; i < copies_.size(); ++i) {
    const auto hash_on = [&](int stage) {
      return all[static_cast<size_t>(group[static_cast<size_t>(stage)]) * copies_.size() + i];
    };
    const std::vector<int>& stages = copies_[i].stages;
    for (const int stage : stages) {
      if (hash_on(stage) == hash_on(stages.front())) continue;
      return fmt::format(
          "{} must be the same on ranks {} and {}, in two pipeline stages, but is not",
          copies_[i].name, group[static_cast<size_t>(stages.front())],
          group[static_cast<size_t>(stage)]);
    }
  }
  return std::nullopt;
}

}  // namespace tessera
