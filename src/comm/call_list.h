#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/call_marks.h"
#include "comm/fingerprint.h"
#include "comm/piece_layout.h"

namespace tessera {

/// The calls that one rank will make in a group: the collectives, and for each other rank the
/// messages to it and from it. The functions that add calls have the names and the arguments of the
/// Communicator's, with types and shapes in place of tensors.
///
/// The list consists of *parts*, such as a segment of a program, which run one after the other. A
/// part may run several times. Shapes are those of the whole, as in Fingerprint.
class CallList {
 public:
  /// Creates the empty list of the rank at `position` of the group `ranks`.
  CallList(std::vector<int> ranks, int position);

  std::span<const int> ranks() const { return ranks_; }
  int position() const { return position_; }

  /// Begins a new part, to which the calls below are added, and returns its index.
  int begin_part();
  /// Notes that a part runs next.
  void run(int part) { runs_.push_back(part); }

  void all_gather(std::string_view name, const PieceLayout& layout, DType dtype,
                  const Shape& whole);
  void reduce_scatter(std::string_view name, const PieceLayout& layout, DType dtype,
                      const Shape& whole, Reduction reduction = Reduction::sum);
  void all_reduce(std::string_view name, DType dtype, const Shape& whole,
                  Reduction reduction = Reduction::sum);
  void all_to_all(std::string_view name, DType dtype, const Shape& operand,
                  const std::optional<Repartition>& repartition = {});
  void all_to_all_rows(std::string_view name, DType dtype, const Shape& row,
                       const std::optional<Repartition>& repartition = {});
  /// Adds a message to or from the rank at position `peer`.
  void send(std::string_view name, int peer, DType dtype, const Shape& shape);
  void receive(std::string_view name, int peer, DType dtype, const Shape& shape);

  /// A sequence of calls about which ranks must agree: the collectives of all ranks, or the
  /// messages from one position of the group to another.
  struct Sequence {
    int from = -1;  ///< -1: the collectives
    int to = -1;
    bool is_messages() const { return from >= 0; }
  };
  /// Returns the hash of the first n calls of a sequence, for each n from 0 to their number.
  std::vector<uint64_t> prefix_hashes(const Sequence& sequence) const;
  /// Returns the hashes of all messages between this rank and each position of the group: of those
  /// to it, and then of those from it.
  std::vector<uint64_t> message_hashes() const;
  /// Returns the call with this index in a sequence, in words. After the last one, says that no
  /// more follow.
  std::string text(const Sequence& sequence, size_t index) const;

  /// Returns the calls of all parts, each part once.
  std::vector<Fingerprint> calls() const;
  /// Returns the hashes of all calls, in ascending order.
  std::vector<uint64_t> hashes() const;

 private:
  void add(const Fingerprint& mark);
  size_t position_of(int rank) const;
  bool belongs(const Fingerprint& mark, const Sequence& sequence) const;
  template <typename Visit>
  void for_each(const Sequence& sequence, Visit&& visit) const;

  std::vector<int> ranks_;
  int position_;
  std::deque<std::string> names_;  // of the calls, whose fingerprints refer to them
  std::vector<std::vector<Fingerprint>> parts_;
  std::vector<int> runs_;
};

}  // namespace tessera
