#include "comm/call_list.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

/// Returns the hash of a sequence with one more call, given that of the sequence before it.
uint64_t extended(uint64_t before, const Fingerprint& call) {
  const std::array both{before, call.hash()};
  return hash(std::as_bytes(std::span(both)));
}

}  // namespace

CallList::CallList(std::vector<int> ranks, int position)
    : ranks_(std::move(ranks)), position_(position) {}

int CallList::begin_part() {
  parts_.emplace_back();
  return static_cast<int>(parts_.size()) - 1;
}

void CallList::add(const Fingerprint& mark) {
  TESSERA_CHECK(!parts_.empty(), "'{}' belongs to no part of a list of calls", mark.name);
  names_.emplace_back(mark.name);
  parts_.back().push_back(mark);
  parts_.back().back().name = names_.back();
}

void CallList::all_gather(std::string_view name, const PieceLayout& layout, DType dtype,
                          const Shape& whole) {
  add(pieces_mark(name, Collective::all_gather, dtype, whole, layout));
}

void CallList::reduce_scatter(std::string_view name, const PieceLayout& layout, DType dtype,
                              const Shape& whole, Reduction reduction) {
  add(pieces_mark(name, Collective::reduce_scatter, dtype, whole, layout, reduction));
}

void CallList::all_reduce(std::string_view name, DType dtype, const Shape& whole,
                          Reduction reduction) {
  add(all_reduce_mark(name, dtype, whole, reduction));
}

void CallList::all_to_all(std::string_view name, DType dtype, const Shape& operand,
                          const std::optional<Repartition>& repartition) {
  add(all_to_all_mark(name, Collective::all_to_all, dtype, operand, repartition));
}

void CallList::all_to_all_rows(std::string_view name, DType dtype, const Shape& row,
                               const std::optional<Repartition>& repartition) {
  add(all_to_all_mark(name, Collective::all_to_all_rows, dtype, row, repartition));
}

void CallList::send(std::string_view name, int peer, DType dtype, const Shape& shape) {
  add(message_mark(name, dtype, shape, ranks_[static_cast<size_t>(position_)],
                   ranks_[static_cast<size_t>(peer)]));
}

void CallList::receive(std::string_view name, int peer, DType dtype, const Shape& shape) {
  add(message_mark(name, dtype, shape, ranks_[static_cast<size_t>(peer)],
                   ranks_[static_cast<size_t>(position_)]));
}

size_t CallList::position_of(int rank) const {
  return static_cast<size_t>(std::ranges::find(ranks_, rank) - ranks_.begin());
}

bool CallList::belongs(const Fingerprint& mark, const Sequence& sequence) const {
  if (!sequence.is_messages()) return mark.collective != Collective::message;
  return mark.collective == Collective::message &&
         mark.from == ranks_[static_cast<size_t>(sequence.from)] &&
         mark.to == ranks_[static_cast<size_t>(sequence.to)];
}

/// Calls visit(mark) for the calls of a sequence, with their sequence numbers, until it returns
/// false.
template <typename Visit>
void CallList::for_each(const Sequence& sequence, Visit&& visit) const {
  // A part that runs often is looked through once.
  std::vector<std::vector<const Fingerprint*>> of_part;
  for (const std::vector<Fingerprint>& part : parts_) {
    of_part.emplace_back();
    for (const Fingerprint& mark : part) {
      if (belongs(mark, sequence)) of_part.back().push_back(&mark);
    }
  }
  int64_t number = 0;
  for (const int part : runs_) {
    for (const Fingerprint* const call : of_part[static_cast<size_t>(part)]) {
      Fingerprint mark = *call;
      mark.sequence = number++;
      if (!visit(mark)) return;
    }
  }
}

std::vector<uint64_t> CallList::prefix_hashes(const Sequence& sequence) const {
  std::vector<uint64_t> hashes{0};
  for_each(sequence, [&](const Fingerprint& mark) {
    hashes.push_back(extended(hashes.back(), mark));
    return true;
  });
  return hashes;
}

std::vector<uint64_t> CallList::message_hashes() const {
  std::vector<uint64_t> hashes(2 * ranks_.size());
  std::vector<int64_t> numbers(hashes.size());
  for (const int part : runs_) {
    for (Fingerprint mark : parts_[static_cast<size_t>(part)]) {
      // A message to the rank itself needs no agreement.
      if (mark.collective != Collective::message || mark.from == mark.to) continue;
      const bool sent = mark.from == ranks_[static_cast<size_t>(position_)];
      const size_t at = 2 * position_of(sent ? mark.to : mark.from) + (sent ? 0 : 1);
      mark.sequence = numbers[at]++;
      hashes[at] = extended(hashes[at], mark);
    }
  }
  return hashes;
}

std::string CallList::text(const Sequence& sequence, size_t index) const {
  const auto rank_at = [&](int position) { return ranks_[static_cast<size_t>(position)]; };
  std::string result = "no more calls";
  if (sequence.is_messages()) {
    result = fmt::format("no more messages from rank {} to rank {}", rank_at(sequence.from),
                         rank_at(sequence.to));
  }
  for_each(sequence, [&](const Fingerprint& mark) {
    if (static_cast<size_t>(mark.sequence) < index) return true;
    result = mark.text();
    return false;
  });
  return result;
}

std::vector<Fingerprint> CallList::calls() const {
  std::vector<Fingerprint> result;
  for (const auto& part : parts_) result.insert(result.end(), part.begin(), part.end());
  return result;
}

std::vector<uint64_t> CallList::hashes() const {
  std::vector<uint64_t> result;
  for (const Fingerprint& mark : calls()) result.push_back(mark.hash());
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace tessera
