#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <mpi.h>

#include "comm/mpi/message_mark.h"

namespace tessera {

/// The memory in which the processes of a group on one machine compare messages (MpiPosts). Each
/// rank has a part of the memory, with a *box* for each other rank. The sender of a message gives
/// its mark, and the bytes if they are few, in its box for the receiver. The receiver gives its own
/// mark, the *answer*, in its box for the sender. Each gives as soon as it has posted the message,
/// and takes later what the other has given. The other rank polls the counts of both.
///
/// Several messages may be under way from one rank to another. Their marks are in slots which are
/// used in turn, so a rank may have to wait with a mark until the other rank has taken an earlier
/// one.
class SharedMail {
 public:
  /// Returns the mail of the ranks of `comm`, which are on one machine and all call it; null on all
  /// of them if the machine has no memory to share. The memory stays until the process ends.
  static std::unique_ptr<SharedMail> make(MPI_Comm comm);

  /// Returns the most bytes that go with a sender's mark.
  int64_t max_bytes() const { return max_bytes_; }

  /// Returns whether there is a free slot for the next mark of this rank: that of the next message
  /// to `peer` if `sent`, or from it.
  bool can_give(int peer, bool sent) {
    OwnCounts& counts = own(peer, sent);
    if (counts.given - counts.taken_by_peer < uint64_t{kSlots}) return true;
    counts.taken_by_peer = taken(peer, position_, !sent).load(std::memory_order_acquire);
    return counts.given - counts.taken_by_peer < uint64_t{kSlots};
  }
  /// Returns the memory for the bytes of the next message to `peer`, if can_give().
  std::byte* next_bytes(int peer) {
    return slot(position_, peer, true, own(peer, true).given) + sizeof(MessageMark);
  }
  void give(int peer, bool sent, const MessageMark& mark) {
    uint64_t& count = own(peer, sent).given;
    mark_at(slot(position_, peer, sent, count)) = mark;
    given(position_, peer, sent).store(++count, std::memory_order_release);
  }

  /// Returns whether the peer has given its mark of the next message that this rank compares.
  bool has_come(int peer, bool sent) {
    return given(peer, position_, !sent).load(std::memory_order_acquire) > own(peer, sent).taken;
  }
  /// Returns that mark, if has_come(). It is valid until take().
  const MessageMark& mark_of(int peer, bool sent) {
    return mark_at(slot(peer, position_, !sent, own(peer, sent).taken));
  }
  /// Returns the bytes that came with the mark of the next message from `peer`.
  const std::byte* bytes_from(int peer) {
    return slot(peer, position_, true, own(peer, false).taken) + sizeof(MessageMark);
  }
  /// Frees the slot of that mark.
  void take(int peer, bool sent) {
    taken(position_, peer, sent).store(++own(peer, sent).taken, std::memory_order_release);
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes of a line of the cache
  static constexpr int64_t kSlots = 4;  // marks of one direction that are not taken
  using Counter = std::atomic<uint64_t>;
  static_assert(Counter::is_always_lock_free && sizeof(Counter) == sizeof(uint64_t));

  /// What this rank knows of its messages to another rank, or from it.
  struct OwnCounts {
    uint64_t given = 0;          // marks that this rank has given
    uint64_t taken = 0;          // marks of the other rank that it has taken
    uint64_t taken_by_peer = 0;  // marks of this rank; the other rank may have taken more by now
  };

  SharedMail(int size, int position);

  OwnCounts& own(int peer, bool sent) {
    return (sent ? sent_ : received_)[static_cast<size_t>(peer)];
  }
  // A box has two halves: of the messages to the other rank, and of the answers to its messages.
  // Each begins with a line of the cache for the count of the marks that are given, and one for the
  // count of the other rank's marks that are taken. The slots follow. Of a mark that is as expected
  // only the first line is read: lines go from one processor to another slowly.
  int64_t message_bytes() const { return int64_t{sizeof(MessageMark)} + max_bytes_; }
  int64_t answers_begin() const { return 2 * kLine + kSlots * message_bytes(); }
  int64_t peer_bytes() const {
    return answers_begin() + 2 * kLine + kSlots * int64_t{sizeof(MessageMark)};
  }
  std::byte* half(int owner, int other, bool sent) {
    return parts_[static_cast<size_t>(owner)] + other * peer_bytes() + (sent ? 0 : answers_begin());
  }
  Counter& given(int owner, int other, bool sent) {
    return *reinterpret_cast<Counter*>(half(owner, other, sent));
  }
  Counter& taken(int owner, int other, bool sent) {
    return *reinterpret_cast<Counter*>(half(owner, other, sent) + kLine);
  }
  std::byte* slot(int owner, int other, bool sent, uint64_t count) {
    const int64_t bytes = sent ? message_bytes() : int64_t{sizeof(MessageMark)};
    return half(owner, other, sent) + 2 * kLine +
           static_cast<int64_t>(count % uint64_t{kSlots}) * bytes;
  }
  static MessageMark& mark_at(std::byte* slot) { return *reinterpret_cast<MessageMark*>(slot); }

  std::vector<std::byte*> parts_;  // by position
  int position_;
  int64_t max_bytes_;
  std::vector<OwnCounts> sent_;  // by position
  std::vector<OwnCounts> received_;
};

}  // namespace tessera
