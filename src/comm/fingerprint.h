#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/worded.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tessera {

/// A kind of call that the ranks of a group make together.
enum class Collective : uint8_t {
  all_gather,       ///< every rank gives a piece and gets the whole
  reduce_scatter,   ///< every rank gets its piece of the sum
  all_reduce,       ///< every rank gets the sum
  all_to_all,       ///< every rank sends a block of one size to every other
  all_to_all_rows,  ///< every rank sends any number of rows to every other
  broadcast,        ///< every rank gets the tensor of one rank
  message,          ///< one rank sends to another
  barrier,          ///< every rank waits for all
};
template <>
inline constexpr std::array<std::string_view, 8> kWordsOf<Collective>{
    "all_gather",      "reduce_scatter", "all_reduce", "all_to_all",
    "all_to_all_rows", "broadcast",      "message",    "barrier"};

/// Returns whether a collective takes sums or maxima.
constexpr bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}

/// The way in which addends become one number.
enum class Reduction : uint8_t {
  sum,      ///< in the order of the ranks
  maximum,  ///< NaN if one of the addends is NaN
  /// A sum whose order the library between devices may choose. Elsewhere it is as `sum`.
  unordered_sum,
};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Reduction>{"sum", "maximum",
                                                                     "sum in any order"};

/// The fingerprint of a call, or *mark* in names: the description that the ranks of a group compare
/// before they communicate. Ranks whose marks differ have made different calls, which is an error.
struct Fingerprint {
  std::string_view name;  ///< of the program's node; its text must outlive the call
  Collective collective = Collective::barrier;
  /// The number of collectives that the rank began with this communicator before this one. Of a
  /// message, the number of earlier messages from its sender to its receiver.
  int64_t sequence = 0;
  DType dtype = DType::u8;
  Shape shape;  ///< of the whole; the shape of one row, [1, ...], in all_to_all_rows
  Reduction reduction = Reduction::sum;
  int from = -1;              ///< the rank that broadcasts or sends a message; -1 in other calls
  int to = -1;                ///< the rank that receives a message; -1 in other calls
  uint64_t layout = 0;        ///< PieceLayout::hash() where there are pieces
  uint64_t layout_after = 0;  ///< PieceLayout::hash() after an all-to-all that changes the pieces

  bool operator==(const Fingerprint&) const = default;
  /// Returns the call in words: "call 3, all_reduce (sum) 'layers.0.norm' of f32 [4, 8]".
  std::string text() const;
  uint64_t hash() const;
};

/// Returns ranks in words: "rank 3", "ranks 0, 1".
std::string ranks_text(std::span<const int> ranks);

}  // namespace tessera
