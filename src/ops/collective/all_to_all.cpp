#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/piece_layout.h"
#include "ops/collective/move.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Visits the blocks that two pieces of the same whole have in common: the piece at `position` of
/// one split and the piece at `other_position` of another. Calls visit(offset in the one piece,
/// offset in the other piece, length) for each block, in the order of the whole. The blocks of both
/// layouts ascend, so it walks through them side by side.
template <typename Visit>
void for_each_common_block(const PieceLayout& split, int position, const PieceLayout& other,
                           int other_position, Visit&& visit) {
  PieceLayout::Blocks a(split, position);
  PieceLayout::Blocks b(other, other_position);
  while (!a.done() && !b.done()) {
    const int64_t begin = std::max(a.in_whole(), b.in_whole());
    const int64_t a_end = a.in_whole() + a.length();
    const int64_t b_end = b.in_whole() + b.length();
    const int64_t end = std::min(a_end, b_end);
    if (begin < end) {
      visit(a.in_piece() + begin - a.in_whole(), b.in_piece() + begin - b.in_whole(), end - begin);
    }
    (a_end <= b_end ? a : b).next();
  }
}

/// Returns the number of elements that these two pieces have in common.
int64_t common_elements(const PieceLayout& split, int position, const PieceLayout& other,
                        int other_position) {
  int64_t elements = 0;
  for_each_common_block(split, position, other, other_position,
                        [&](int64_t, int64_t, int64_t length) { elements += length; });
  return elements;
}

/// Sharded -> sharded, along another dim or in other pieces. Input: this rank's piece of the old
/// split. Output: its piece of the new split.
///
/// Each rank is sent the elements that its new piece and this rank's old piece have in common, in
/// the order of the whole. They are packed before they are sent. If each new piece is one block of
/// the whole, they are contiguous already and need no packing. Likewise, received elements need no
/// unpacking if each old piece is one block of the whole.
class AllToAll final : public CollectiveOperation {
 public:
  explicit AllToAll(Move move) : CollectiveOperation(std::move(move)) {
    if (equal_blocks()) return;
    for (int other = 0; other < this->move().ranks; ++other) {
      sent_.push_back(common(this->move().position, other));
      received_.push_back(common(other, this->move().position));
    }
  }
  std::string_view name() const override { return "all_to_all"; }

  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    const int64_t size = dtype_size(inputs[0].dtype);
    return packed_bytes(size) + (unpacks() ? move().own_after.elements() * size : 0);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{}: devices do not move pieces from one split to another yet; set run.device = \"cpu\"",
        name());
  }

  void run(const Execution& execution) const override {
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
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

 protected:
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return (move().before->elements(position) - common(position, position)) * element_bytes;
  }

 private:
  bool packs() const { return !move().after->even_blocks(); }
  bool unpacks() const { return !move().before->even_blocks(); }
  int64_t packed_bytes(int64_t element_bytes) const {
    return packs() ? aligned_bytes(move().own_before.elements() * element_bytes) : 0;
  }

  /// Returns the number of elements that the rank at position `from` has before and the rank at
  /// position `to` has afterwards.
  int64_t common(int from, int to) const {
    if (!other_dim()) return common_elements(*move().before, from, *move().after, to);
    const int64_t whole = std::max<int64_t>(move().whole.elements(), 1);
    return move().before->elements(from) * move().after->elements(to) / whole;
  }

  /// Returns whether the new split is along another dim than the old one. Then every old piece has
  /// elements in common with every new piece, in proportion to the sizes of both.
  bool other_dim() const { return move().from.dim != move().conversions.front().to.dim; }

  /// Returns whether every rank sends equally much to every other. All ranks get the same answer.
  bool equal_blocks() const {
    const auto equal = [&](const PieceLayout& layout) {
      for (int position = 1; position < layout.ranks(); ++position) {
        if (layout.elements(position) != layout.elements(0)) return false;
      }
      return true;
    };
    return other_dim() && equal(*move().before) && equal(*move().after);
  }

  void send(const Execution& execution, const Tensor& from, const Tensor& to) const {
    const Repartition splits{move().whole, move().before->fingerprint(),
                             move().after->fingerprint()};
    if (sent_.empty()) return execution.group().all_to_all(execution.name, from, to, splits);
    execution.group().all_to_all_rows(execution.name, from, sent_, to, received_, splits);
  }

  void pack(const std::byte* from, std::byte* packed, int64_t size) const {
    for (int other = 0; other < move().ranks; ++other) {
      for_each_common_block(*move().before, move().position, *move().after, other,
                            [&](int64_t own, int64_t, int64_t length) {
                              const auto bytes = static_cast<size_t>(length * size);
                              std::memcpy(packed, from + own * size, bytes);
                              packed += bytes;
                            });
    }
  }

  void unpack(const std::byte* arrived, std::byte* to, int64_t size) const {
    for (int other = 0; other < move().ranks; ++other) {
      for_each_common_block(*move().before, other, *move().after, move().position,
                            [&](int64_t, int64_t own, int64_t length) {
                              const auto bytes = static_cast<size_t>(length * size);
                              std::memcpy(to + own * size, arrived, bytes);
                              arrived += bytes;
                            });
    }
  }

  // The elements sent to and received from each rank; both are empty if all are equal.
  std::vector<int64_t> sent_, received_;
};

}  // namespace

std::shared_ptr<const Operation> make_all_to_all(Move move) {
  return std::make_shared<AllToAll>(std::move(move));
}

}  // namespace tessera
