#include "comm/mpi/mpi_messages_mpi.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/mpi/mpi_call_mpi.h"

// An exchange has two steps: the ranks compare the numbers of all messages, by SharedMail or by
// MpiPagedMessages, and small messages arrive with the numbers. Then large messages follow.

namespace tessera {
namespace {

// The tags of MPI's messages. MpiMeeting has the tag 3 on the same communicator.
constexpr int kPiece = 0;         // the bytes of a message that is not small
constexpr int kHeader = 1;        // from a sender to a receiver
constexpr int kAnswer = 2;        // from a receiver to a sender
constexpr int kSentText = 4;      // the description of a message by its sender
constexpr int kReceivedText = 5;  // the description of a message by its receiver

void copy(const std::byte* from, int64_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

constexpr int64_t kNumber = sizeof(uint64_t);  // bytes of a message's number

/// The two headers of a message (MpiPagedMessages). The header of the sender has the sender's
/// number and the bytes of a small message. The answer of the receiver has the receiver's number.
struct Headers {
  static constexpr int64_t kAnswerRoom = MpiPagedMessages::room(kNumber);

  int64_t bytes() const { return kNumber + (small ? message->tensor.bytes() : 0); }
  std::byte* answer(std::byte* memory) const { return memory + offset; }
  std::byte* header(std::byte* memory) const { return memory + offset + kAnswerRoom; }

  const MarkedMessage* message;
  bool small;
  uint64_t number;  ///< this rank's
  int64_t offset;   ///< in the memory of all headers
};

/// The description of a message by one of its ranks.
using Text = std::array<char, 512>;

Text text_of(const Fingerprint& mark) {
  Text result{};
  const std::string text = mark.text();
  std::memcpy(result.data(), text.data(), std::min(text.size(), result.size() - 1));
  return result;
}

}  // namespace

void MpiMessages::exchange(const Fingerprint& mark, std::span<const MarkedMessage> sends,
                           std::span<const MarkedMessage> receives) {
  if (group_.mail() != nullptr) {
    compare_by_mail(*group_.mail(), mark, sends, receives);
  } else {
    compare(mark, sends, receives);
  }
  const auto large = [this](std::span<const MarkedMessage> messages) {
    std::vector<MpiPiece> pieces;
    for (const MarkedMessage& message : messages) {
      if (is_small(message)) continue;
      pieces.push_back({message.peer, message.tensor.raw(), message.tensor.bytes()});
    }
    return pieces;
  };
  const std::vector<MpiPiece> out = large(sends);
  const std::vector<MpiPiece> in = large(receives);
  if (!out.empty() || !in.empty()) exchange_pieces(mark, out, in);
}

/// Returns whether the bytes of a message are sent together with its number.
bool MpiMessages::is_small(const MarkedMessage& message) const {
  const int64_t max_bytes = group_.mail() != nullptr ? group_.mail()->max_bytes() : kSmallCallBytes;
  return message.tensor.bytes() <= max_bytes;
}

/// Compares messages as compare() does, for ranks of one machine.
void MpiMessages::compare_by_mail(SharedMail& mail, const Fingerprint& mark,
                                  std::span<const MarkedMessage> sends,
                                  std::span<const MarkedMessage> receives) {
  numbers_.clear();
  for (const MarkedMessage& message : sends) {
    std::byte* const memory = mail.begin_send(message.peer);
    if (is_small(message)) copy(message.tensor.raw(), message.tensor.bytes(), memory);
    mail.send(message.peer, numbers_.emplace_back(message.mark.hash()));
    add_peer(message.peer);
  }
  for (const MarkedMessage& message : receives) {
    mail.begin_receive(message.peer, numbers_.emplace_back(message.mark.hash()));
    add_peer(message.peer);
  }
  const auto have_come = [&](std::span<const MarkedMessage> messages, bool sent) {
    return std::ranges::all_of(
        messages, [&](const MarkedMessage& message) { return mail.has_come(message.peer, sent); });
  };
  group_.wait_for(
      mark, [&] { return have_come(sends, true) && have_come(receives, false); }, peers_);
  peers_.clear();
  const auto differing = [&](std::span<const MarkedMessage> messages, bool sent) {
    std::vector<const MarkedMessage*> result;
    const size_t before = sent ? 0 : sends.size();
    for (size_t i = 0; i < messages.size(); ++i) {
      const bool same = mail.number_of(messages[i].peer, sent) == numbers_[before + i];
      if (!same) result.push_back(&messages[i]);
    }
    return result;
  };
  const auto sent = differing(sends, true);
  const auto received = differing(receives, false);
  if (!sent.empty() || !received.empty()) throw_different(mark, sent, received);
  for (const MarkedMessage& message : receives) {
    if (!is_small(message)) continue;
    copy(mail.bytes_from(message.peer), message.tensor.bytes(), message.tensor.raw());
  }
}

/// Compares the numbers of each message on both of its ranks. Small messages arrive with them.
void MpiMessages::compare(const Fingerprint& mark, std::span<const MarkedMessage> sends,
                          std::span<const MarkedMessage> receives) {
  std::vector<Headers> headers;
  int64_t bytes = 0;
  for (const auto& messages : {sends, receives}) {
    for (const MarkedMessage& message : messages) {
      headers.push_back({&message, is_small(message), message.mark.hash(), bytes});
      bytes += Headers::kAnswerRoom + MpiPagedMessages::room(headers.back().bytes());
    }
  }
  std::byte* const memory = memory_.bytes(bytes);
  const auto out = std::span(headers).first(sends.size());
  const auto in = std::span(headers).last(receives.size());
  for (const Headers& entry : in) {
    paged_.receive(entry.header(memory), entry.bytes(), entry.message->peer, kHeader,
                   group_.marks());
    add_peer(entry.message->peer);
  }
  for (const Headers& entry : out) {
    paged_.receive(entry.answer(memory), kNumber, entry.message->peer, kAnswer, group_.marks());
    add_peer(entry.message->peer);
  }
  for (const Headers& entry : out) {
    const Tensor& tensor = entry.message->tensor;
    std::memcpy(entry.header(memory), &entry.number, kNumber);
    copy(tensor.raw(), entry.bytes() - kNumber, entry.header(memory) + kNumber);
    paged_.send(entry.header(memory), entry.bytes(), entry.message->peer, kHeader, group_.marks());
  }
  for (const Headers& entry : in) {
    std::memcpy(entry.answer(memory), &entry.number, kNumber);
    paged_.send(entry.answer(memory), kNumber, entry.message->peer, kAnswer, group_.marks());
  }
  const auto same = [&](const Headers& entry) {
    return std::memcmp(entry.header(memory), entry.answer(memory), kNumber) == 0;
  };
  const bool all_same =
      paged_.finish([&](std::span<MPI_Request> requests) { group_.wait(mark, requests, peers_); },
                    [&] { return std::ranges::all_of(headers, same); });
  peers_.clear();
  if (!all_same) {
    const auto differing = [&](std::span<const Headers> entries) {
      std::vector<const MarkedMessage*> result;
      for (const Headers& entry : entries) {
        if (!same(entry)) result.push_back(entry.message);
      }
      return result;
    };
    throw_different(mark, differing(out), differing(in));
  }
  for (const Headers& entry : in) {
    copy(entry.header(memory) + kNumber, entry.bytes() - kNumber, entry.message->tensor.raw());
  }
}

/// Throws Error for messages about which their two ranks do not agree. Both ranks know this, and
/// send each other their descriptions of the messages.
void MpiMessages::throw_different(const Fingerprint& mark,
                                  std::span<const MarkedMessage* const> sent,
                                  std::span<const MarkedMessage* const> received) {
  std::vector<Text> own;
  for (const MarkedMessage* message : received) own.push_back(text_of(message->mark));
  for (const MarkedMessage* message : sent) own.push_back(text_of(message->mark));
  std::vector<Text> others(own.size());
  const auto swap_texts = [&](size_t index, int peer, int own_tag, int peer_tag) {
    receive(std::as_writable_bytes(std::span(others[index])).data(), sizeof(Text), peer, peer_tag,
            group_.marks());
    send(std::as_bytes(std::span(own[index])).data(), sizeof(Text), peer, own_tag, group_.marks());
  };
  for (size_t i = 0; i < received.size(); ++i) {
    swap_texts(i, received[i]->peer, kReceivedText, kSentText);
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    swap_texts(received.size() + i, sent[i]->peer, kSentText, kReceivedText);
  }
  wait(mark, Backoff::Between::sleeps);
  const auto rank_at = [&](int position) { return group_.ranks()[static_cast<size_t>(position)]; };
  const int own_rank = rank_at(group_.position());
  if (!received.empty()) {
    throw Error("{}", different_messages_text(group_.text(), rank_at(received[0]->peer),
                                              others[0].data(), own_rank, own[0].data()));
  }
  throw Error("{}", different_messages_text(group_.text(), own_rank, own[0].data(),
                                            rank_at(sent[0]->peer), others[0].data()));
}

void MpiMessages::exchange_pieces(const Fingerprint& mark, std::span<const MpiPiece> sends,
                                  std::span<const MpiPiece> receives) {
  for (const MpiPiece& piece : receives) {
    receive(piece.memory, piece.bytes, piece.peer, kPiece, group_.data());
  }
  for (const MpiPiece& piece : sends) {
    send(piece.memory, piece.bytes, piece.peer, kPiece, group_.data());
  }
  wait(mark, Backoff::Between::yields);
}

void MpiMessages::receive(std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
  add_peer(peer);
  for (int64_t done = 0; done < bytes; done += kMostMessageBytes) {
    const int64_t part = std::min(kMostMessageBytes, bytes - done);
    requests_.push_back(begin_receive(memory + done, part, peer, tag, comm));
  }
}

void MpiMessages::send(const std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
  add_peer(peer);
  for (int64_t done = 0; done < bytes; done += kMostMessageBytes) {
    const int64_t part = std::min(kMostMessageBytes, bytes - done);
    requests_.push_back(begin_send(memory + done, part, peer, tag, comm));
  }
}

void MpiMessages::add_peer(int peer) {
  if (peer == group_.position() || std::ranges::find(peers_, peer) != peers_.end()) return;
  peers_.push_back(peer);
}

/// Waits for all requests that have begun.
void MpiMessages::wait(const Fingerprint& mark, Backoff::Between between) {
  group_.wait(mark, requests_, peers_, between);
  requests_.clear();
  peers_.clear();
}

}  // namespace tessera
