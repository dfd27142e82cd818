#include "comm/rank_control.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/hash.h"
#include "comm/share.h"

// Each agreement consists of collectives of all ranks, on small tensors in the processor's memory.
// A run of one rank has no group: `world_` is null, and calls return `own`.

namespace tessera {

std::string RankControl::text(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return index < names_.size() ? names_[index] : fmt::format("rank {}", rank);
}

std::optional<std::string> RankControl::first_failure(const std::optional<std::string>& own) const {
  if (world_ == nullptr) return own;
  constexpr uint64_t kNone = 0;  // no hash of a failure: they are made odd below
  const std::vector<uint64_t> all = gather(std::array{own ? hash(*own) | 1 : kNone});
  const auto failed =
      std::ranges::find_if(all, [&](uint64_t failure_hash) { return failure_hash != kNone; });
  if (failed == all.end()) return std::nullopt;
  const std::string failure = any_text(own).value_or("");
  const auto same = [&](uint64_t failure_hash) { return failure_hash == *failed; };
  if (std::ranges::all_of(all, same)) return failure;
  const auto position = static_cast<size_t>(failed - all.begin());
  return fmt::format("{}: {}", text(world_->ranks()[position]), failure);
}

RankControl RankControl::during(std::string work) const {
  RankControl control = *this;
  control.work_ = std::move(work);
  return control;
}

RankControl RankControl::within_stage(std::string_view lane) const {
  RankControl stage = *this;
  if (groups_ == nullptr) return stage;
  const Mesh& mesh = groups_->mesh();
  stage.world_ = &groups_->over(mesh.axes_of(MeshView::dense), lane);
  return stage;
}

std::string RankControl::named(std::string_view call) const {
  return work_.empty() ? std::string(call) : fmt::format("{} of {}", call, work_);
}

bool RankControl::any(bool own) const {
  if (world_ == nullptr) return own;
  const Tensor flag({1}, DType::f32);
  flag.data<float>()[0] = own ? 1 : 0;
  world_->all_reduce(named("any"), flag, flag, Reduction::maximum);
  return flag.data<float>()[0] > 0;
}

std::optional<std::string> RankControl::any_text(const std::optional<std::string>& own) const {
  if (world_ == nullptr) return own;
  const std::optional<RankText> first = first_text(*world_, named("any_text"), own);
  return first ? std::optional(first->text) : std::nullopt;
}

std::optional<std::string> RankControl::lowest_text(int64_t number,
                                                    const std::optional<std::string>& own) const {
  if (world_ == nullptr) return own;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // There is no minimum among the reductions, so it takes the maximum of negative numbers.
  const double negative = own ? -static_cast<double>(number) : -kNone;
  const Tensor lowest({1}, DType::f64);
  lowest.data<double>()[0] = negative;
  world_->all_reduce(named("lowest_text"), lowest, lowest, Reduction::maximum);
  const bool is_own = own && lowest.data<double>()[0] == negative;
  return any_text(is_own ? own : std::nullopt);
}

std::vector<uint64_t> RankControl::gather(std::span<const uint64_t> own) const {
  if (world_ == nullptr) return {own.begin(), own.end()};
  return gather_numbers(*world_, named("gather"), own);
}

std::vector<std::string> RankControl::texts_for_first(const std::string& own) const {
  if (world_ == nullptr) return {own};
  const std::vector<uint64_t> lengths = gather(std::array{static_cast<uint64_t>(own.size())});
  std::vector<int64_t> sent(lengths.size());
  std::vector<int64_t> received(lengths.size());
  sent[0] = std::ssize(own);
  if (is_first()) std::ranges::copy(lengths, received.begin());
  const Tensor from({std::ssize(own)}, DType::u8);
  std::ranges::copy(own, from.data<uint8_t>());
  const Tensor to({std::accumulate(received.begin(), received.end(), int64_t{0})}, DType::u8);
  world_->all_to_all_rows(named("texts_for_first"), from, sent, to, received);
  std::vector<std::string> texts;
  const uint8_t* begin = to.data<uint8_t>();
  for (const int64_t length : received) {
    if (is_first()) texts.emplace_back(begin, begin + length);
    begin += length;
  }
  return texts;
}

void RankControl::wait() const {
  if (world_ != nullptr) world_->barrier(named("wait"));
}

}  // namespace tessera
