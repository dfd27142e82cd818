#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/transport_post.h"
#include "tensor/tensor.h"

namespace tessera {

/// Moves the bytes of one rank's calls within one group. A Communicator checks the operands before
/// it calls the transport. The transport waits for the other ranks, compares their fingerprints,
/// and copies or reduces. It reduces in the order of the group's ranks, as reduce() does. When a
/// call returns, its result is there and its operands may change.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                          const Tensor& to) = 0;
  virtual void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout,
                              const Tensor& from, const Tensor& to) = 0;
  virtual void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) = 0;
  /// Sends block i of `from` to position i, and receives block i of `to` from there.
  virtual void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) = 0;
  /// Sends `sent[i]` rows to position i and receives `received[i]` rows from there. The blocks of
  /// rows follow each other in the tensors.
  virtual void all_to_all_rows(const Fingerprint& mark, const Tensor& from,
                               std::span<const int64_t> sent, const Tensor& to,
                               std::span<const int64_t> received) = 0;
  virtual void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) = 0;
  /// Posts a message, and returns without a wait for the other rank. Messages from one rank to
  /// another match in the order in which each of the two posts them.
  virtual std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) = 0;
  /// Waits until messages that post() has returned have moved. A message moves once both of its
  /// ranks have posted it, even if the other rank does not wait for it.
  virtual void wait(std::span<TransportPost* const> posts) = 0;
  virtual void barrier(const Fingerprint& mark) = 0;

  /// Sets whether the ranks compare each call before they make it, if the transport has a choice:
  /// comparison costs a round of messages. At first they do. All ranks of the group call it,
  /// between the same two calls.
  virtual void compare_calls(bool each) { static_cast<void>(each); }
  /// Returns whether the ranks compare each call before they make it.
  virtual bool compares_calls() const { return true; }

  /// Throws Error if the group can make no more calls, because a call or the work of a rank failed.
  virtual void throw_if_broken() = 0;

  /// Returns the number of bytes that this rank has received from other ranks so far, to copy them
  /// or to sum them. A message counts when it has arrived.
  int64_t received_bytes() const { return received_bytes_; }

 protected:
  /// Counts bytes of other ranks. Transports call it where they copy or sum such bytes, so the
  /// count does not depend on a formula.
  void count_received(int64_t bytes) { received_bytes_ += bytes; }

 private:
  int64_t received_bytes_ = 0;
};

}  // namespace tessera
