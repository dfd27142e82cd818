#pragma once

#include <string>

#include "comm/fingerprint.h"
#include "tensor/tensor.h"

namespace tessera {

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

}  // namespace tessera
