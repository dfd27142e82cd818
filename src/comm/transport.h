#pragma once

#include <cstdint>
#include <span>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "tensor/tensor.h"

namespace tessera {

/// A message to or from the rank at position `peer` of the group.
struct Message {
  int peer = 0;
  Tensor tensor;
};

/// A message with what both of its ranks must agree about. The tensor is empty, whatever the mark
/// says, if devices move the bytes.
struct MarkedMessage {
  Fingerprint mark;
  int peer = 0;
  Tensor tensor;
};

/// Moves the bytes of one rank's calls within one group. A Communicator checks the operands before
/// it calls a transport, so a transport compares what the ranks say, waits and copies.
///
/// Every transport reduces in the order of the group's ranks, as reduce() does. A call returns when
/// its result is there and its operands may change, or when it is in the stream that does it.
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
  /// Block i of `from` goes to position i, and block i of `to` comes from there.
  virtual void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) = 0;
  /// The same with blocks of these numbers of rows, one after the other.
  virtual void all_to_all_rows(const Fingerprint& mark, const Tensor& from,
                               std::span<const int64_t> sent, const Tensor& to,
                               std::span<const int64_t> received) = 0;
  virtual void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) = 0;
  virtual void exchange(std::span<const MarkedMessage> sends,
                        std::span<const MarkedMessage> receives) = 0;
  virtual void barrier(const Fingerprint& mark) = 0;

  /// Throws Error if calls of the group cannot be made any more, because one failed or the work of
  /// a rank did.
  virtual void throw_if_broken() = 0;

  /// The bytes that this rank has taken from other ranks so far, as they were moved: what it copied
  /// from their memory, and what it read there for sums. A message counts when it has arrived.
  int64_t received_bytes() const { return received_bytes_; }

 protected:
  /// Is called where bytes of others are copied or summed.
  void received(int64_t bytes) { received_bytes_ += bytes; }

 private:
  int64_t received_bytes_ = 0;
};

}  // namespace tessera
