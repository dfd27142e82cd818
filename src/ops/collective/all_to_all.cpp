#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "comm/call_list.h"
#include "comm/piece_layout.h"
#include "ops/collective/move.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Visits the ranges that a piece of one split and a piece of another split of the same whole have
/// in common, in the order of the whole. Calls visit(offset in the first piece, offset in the
/// second piece, length) for each. The ranges of both pieces ascend, so it walks through them side
/// by side.
template <typename Visit>
void for_each_common_range(const PieceLayout& first_split, int first_position,
                           const PieceLayout& second_split, int second_position, Visit&& visit) {
  PieceLayout::RangeIterator a(first_split, first_position);
  PieceLayout::RangeIterator b(second_split, second_position);
  while (!a.done() && !b.done()) {
    const int64_t begin = std::max(a.whole_offset(), b.whole_offset());
    const int64_t a_end = a.whole_offset() + a.length();
    const int64_t b_end = b.whole_offset() + b.length();
    const int64_t end = std::min(a_end, b_end);
    if (begin < end) {
      visit(a.piece_offset() + begin - a.whole_offset(),
            b.piece_offset() + begin - b.whole_offset(), end - begin);
    }
    (a_end <= b_end ? a : b).next();
  }
}

/// Returns the number of elements that these two pieces have in common.
int64_t common_elements(const PieceLayout& first_split, int first_position,
                        const PieceLayout& second_split, int second_position) {
  int64_t elements = 0;
  for_each_common_range(first_split, first_position, second_split, second_position,
                        [&](int64_t, int64_t, int64_t length) { elements += length; });
  return elements;
}

/// The conversion sharded -> sharded, along another dim or in other pieces. Input: this rank's
/// piece of the old split. Output: its piece of the new split.
///
/// This rank sends each rank the elements that its own old piece and the other rank's new piece
/// have in common, in the order of the whole. If the new pieces are equal blocks of the whole in
/// the order of the ranks (is_even()), the old piece has these elements in the order of sending.
/// Otherwise this rank packs them first. Likewise, it unpacks what it receives unless the old
/// pieces are such blocks.
class AllToAll final : public CollectiveOperation {
 public:
  explicit AllToAll(Move move) : CollectiveOperation(std::move(move)) {
    if (sends_equal_counts()) return;
    for (int peer = 0; peer < this->move().ranks; ++peer) {
      sent_.push_back(common_count(this->move().position, peer));
      received_.push_back(common_count(peer, this->move().position));
    }
  }
  std::string_view name() const override { return "all_to_all"; }

  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    const int64_t size = dtype_size(inputs[0].dtype);
    return packed_bytes(size) + (unpacks() ? move().own_shape_after.elements() * size : 0);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{}: devices do not move pieces from one split to another yet; set run.device = \"cpu\"",
        name());
  }

  void run(const Execution& execution) const override {
    const Tensor &from = execution.inputs[0], &to = execution.outputs[0];
    const int64_t size = dtype_size(from.dtype());
    std::byte* const packed = execution.workspace.data();
    std::byte* const arrived = packed + packed_bytes(size);
    if (packs()) pack(from.raw(), packed, size);
    const auto flat = [&](std::byte* memory, const Tensor& like) {
      return Tensor::wrap(memory, {like.elements()}, like.dtype());
    };
    const Tensor out = flat(packs() ? packed : from.raw(), from);
    const Tensor in = flat(unpacks() ? arrived : to.raw(), to);
    send(execution, out, in);
    if (unpacks()) unpack(arrived, to.raw(), size);
  }
  void list_calls(const CallListing& listing) const override {
    CallList& group = listing.group();
    const Spec& from = listing.inputs[0];
    sent_.empty() ? group.all_to_all(listing.name, from.dtype, from.shape, splits())
                  : group.all_to_all_rows(listing.name, from.dtype, from.shape, splits());
  }

 protected:
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return (move().before->elements(position) - common_count(position, position)) * element_bytes;
  }

 private:
  bool packs() const { return !move().after->is_even(); }
  bool unpacks() const { return !move().before->is_even(); }
  int64_t packed_bytes(int64_t element_bytes) const {
    return packs() ? aligned_bytes(move().own_shape_before.elements() * element_bytes) : 0;
  }

  /// Returns the number of elements that the rank at position `from` has before the move and the
  /// rank at position `to` has afterwards.
  int64_t common_count(int from, int to) const {
    if (!changes_dim()) return common_elements(*move().before, from, *move().after, to);
    const int64_t whole = std::max<int64_t>(move().whole.elements(), 1);  // it may be empty
    return move().before->elements(from) * move().after->elements(to) / whole;
  }

  /// Returns whether the new split is along another dim than the old one. Then every old piece has
  /// elements in common with every new piece, in proportion to the sizes of both.
  bool changes_dim() const { return move().from.dim != move().conversions.front().to.dim; }

  /// Returns whether every rank sends equally much to every rank. All ranks get the same answer.
  bool sends_equal_counts() const {
    const auto equal = [&](const PieceLayout& layout) {
      for (int position = 1; position < layout.ranks(); ++position) {
        if (layout.elements(position) != layout.elements(0)) return false;
      }
      return true;
    };
    return changes_dim() && equal(*move().before) && equal(*move().after);
  }

  /// Returns both splits of the whole, about which all ranks must agree.
  Repartition splits() const { return {move().whole, move().before->hash(), move().after->hash()}; }
  void send(const Execution& execution, const Tensor& from, const Tensor& to) const {
    if (sent_.empty()) return execution.group().all_to_all(execution.name, from, to, splits());
    execution.group().all_to_all_rows(execution.name, from, sent_, to, received_, splits());
  }

  /// Copies from the old piece what each rank gets, rank by rank, to `packed`.
  void pack(const std::byte* from, std::byte* packed, int64_t size) const {
    for (int peer = 0; peer < move().ranks; ++peer) {
      for_each_common_range(*move().before, move().position, *move().after, peer,
                            [&](int64_t own, int64_t, int64_t length) {
                              packed = std::copy_n(from + own * size, length * size, packed);
                            });
    }
  }

  /// Copies what has arrived from each rank, rank by rank, into the new piece.
  void unpack(const std::byte* arrived, std::byte* to, int64_t size) const {
    for (int peer = 0; peer < move().ranks; ++peer) {
      for_each_common_range(*move().before, peer, *move().after, move().position,
                            [&](int64_t, int64_t own, int64_t length) {
                              std::copy_n(arrived, length * size, to + own * size);
                              arrived += length * size;
                            });
    }
  }

  // The numbers of elements sent to and received from each rank. Both lists are empty if every rank
  // sends equally much to every rank: all_to_all() then needs no counts.
  std::vector<int64_t> sent_, received_;
};

}  // namespace

std::shared_ptr<const Operation> make_all_to_all(Move move) {
  return std::make_shared<AllToAll>(std::move(move));
}

}  // namespace tessera
