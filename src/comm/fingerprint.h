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
  all_gather,       ///< every rank gets the whole of which each has a piece
  reduce_scatter,   ///< every rank gets its piece of the sum
  all_reduce,       ///< every rank gets the sum
  all_to_all,       ///< every rank sends a block of one size to every other
  all_to_all_rows,  ///< every rank sends any number of rows to every other
  broadcast,        ///< every rank gets what one has
  message,          ///< one rank sends to another
  barrier,          ///< every rank waits for all
};
template <>
inline constexpr std::array<std::string_view, 8> kWords<Collective>{
    "all_gather",      "reduce_scatter", "all_reduce", "all_to_all",
    "all_to_all_rows", "broadcast",      "message",    "barrier"};

/// The way in which addends become one number.
enum class Reduction : uint8_t {
  sum,
  maximum,  ///< NaN if one of them is NaN
};
template <>
inline constexpr std::array<std::string_view, 2> kWords<Reduction>{"sum", "maximum"};

/// The mark of a call: all that the ranks of a group compare before they communicate. Ranks whose
/// marks differ have made different calls, which is an error.
struct Fingerprint {
  std::string_view name;  ///< of the program's node; the text outlives the call
  Collective collective = Collective::barrier;
  /// The number of collectives that the rank began with this communicator before. Messages are
  /// counted for each pair of ranks in each direction.
  int64_t sequence = 0;
  DType dtype = DType::u8;
  Shape shape;  ///< of the whole; [1, ...] for rows of any number
  Reduction reduction = Reduction::sum;
  int from = -1;              ///< the rank that broadcasts or sends a message; -1 in other calls
  int to = -1;                ///< the rank that receives a message; -1 in other calls
  uint64_t layout = 0;        ///< PieceLayout::fingerprint() where there are pieces
  uint64_t layout_after = 0;  ///< of the pieces into which an all-to-all changes them

  bool operator==(const Fingerprint&) const = default;
  /// Returns the call in words: "call 3, all_reduce (sum) 'layers.0.norm' of f32 [4, 8]".
  std::string text() const;
  /// Returns a number that is the same for equal fingerprints and differs for different ones.
  uint64_t hash() const;
};

/// Returns ranks in words: "rank 3", "ranks 0, 1".
std::string ranks_text(std::span<const int> ranks);

}  // namespace tessera
