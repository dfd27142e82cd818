#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "tensor/tensor.h"

namespace tessera {

/// A collective as one rank makes it.
struct TransportCall {
  const Fingerprint& mark;  ///< about which all ranks must agree
  /// The collective that moves bytes here: that of the mark, or a barrier if devices move them.
  Collective moves = Collective::barrier;
  const PieceLayout* layout = nullptr;  ///< of all_gather and reduce_scatter
  /// The operand that this rank gives, and the one that it gets. Of a broadcast, the rank at `root`
  /// gives its tensor, and the others get it. Of an all-to-all, the operands have the rows that are
  /// sent and received, by position. They may be of any shape.
  Tensor from = Tensor::wrap(nullptr, {0}, DType::u8);
  Tensor to = Tensor::wrap(nullptr, {0}, DType::u8);
  std::span<const int64_t> sent = {};      ///< of an all-to-all: rows to each position
  std::span<const int64_t> received = {};  ///< of an all-to-all: rows from each position
  int64_t row_elements = 0;                ///< of an all-to-all
  int root = 0;                            ///< of a broadcast: a position

  int64_t row_bytes() const { return row_elements * dtype_size(mark.dtype); }
};

/// A message to or from the rank at position `peer` of the group.
struct Message {
  int peer = 0;
  Tensor tensor;
};

/// A message with its fingerprint (mark), about which both of its ranks must agree. If devices move
/// the bytes, the tensor is empty, whatever shape the fingerprint has.
struct MarkedMessage {
  Fingerprint mark;
  int peer = 0;
  Tensor tensor;
};

/// A message that a rank has posted to its transport: one end of it (Transport::post()). Each
/// transport derives a class with the state of the message. The destructor withdraws a message that
/// has not moved: no rank uses its memory any more when the destructor returns.
class TransportPost {
 public:
  /// Copies the message, with the text of its name.
  TransportPost(const MarkedMessage& message, bool sent)
      : name_(message.mark.name), message_(message), sent_(sent) {
    message_.mark.name = name_;
  }
  virtual ~TransportPost() = default;
  TransportPost(const TransportPost&) = delete;
  TransportPost& operator=(const TransportPost&) = delete;

  const Fingerprint& mark() const { return message_.mark; }
  const Tensor& tensor() const { return message_.tensor; }
  int peer() const { return message_.peer; }  ///< the position of the other rank
  bool sent() const { return sent_; }         ///< whether this rank sends the message

 private:
  std::string name_;
  MarkedMessage message_;
  bool sent_;
};

/// Moves the bytes of one rank's calls within one group. A Communicator checks the operands before
/// it calls the transport. The transport waits for the other ranks, compares their fingerprints,
/// and copies or reduces. It reduces in the order of the group's ranks, as reduce() does.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Makes a collective. When it returns, its result is there and its operands may change.
  virtual void make(const TransportCall& call) = 0;
  /// Posts a message, and returns without a wait for the other rank. Messages from one rank to
  /// another match in the order in which each of the two posts them.
  virtual std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) = 0;
  /// Waits until messages that post() has returned have moved. A message moves once both of its
  /// ranks have posted it, even if the other rank does not wait for it.
  virtual void wait(std::span<TransportPost* const> posts) = 0;

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
