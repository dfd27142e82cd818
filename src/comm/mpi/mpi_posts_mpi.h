#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/mpi_news_mpi.h"
#include "comm/transport_post.h"

namespace tessera {

class MpiPost;

/// The messages that a process of a group has posted.
///
/// Each of the two ranks of a message gives the other its own mark (MessageMark) as soon as it has
/// posted the message. The bytes of a small message go with the sender's mark. Those of a large one
/// follow when the sender has seen that the marks are equal; the receiver is ready for them since
/// its post. Ranks of one machine give marks in memory that they share (SharedMail), others by
/// messages of MPI.
///
/// So a message may need *steps* of this rank after its post. All waits of this process make them,
/// whatever they wait for, and so does its watch thread (MpiNews::listen()).
///
/// One thread posts and waits. Other threads may make steps at the same time.
class MpiPosts {
 public:
  /// Refers to the group and to the news of its process.
  MpiPosts(MpiGroup& group, MpiNews& news);

  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent);
  /// Waits until posts have moved. If the two ranks of one do not agree about it, both throw Error.
  void wait(std::span<TransportPost* const> posts);
  /// Returns the first of some posts that has not moved, or the first of all.
  const TransportPost& first_to_move(std::span<TransportPost* const> posts);

 private:
  friend class MpiPost;
  using Lock = std::unique_lock<std::mutex>;

  /// The messages to a peer, or from it, that have not moved, in their order.
  struct Channel {
    int peer = 0;
    bool sent = false;
    std::vector<MpiPost*> to_give{};     // this rank has not given its mark
    std::vector<MpiPost*> to_compare{};  // it has, but the peer's mark has not come
    std::vector<MpiPost*> moving{};      // the ranks agree, and the bytes are under way

    bool is_empty() const { return to_give.empty() && to_compare.empty() && moving.empty(); }
  };

  // The caller holds the lock, down to end().
  void make_steps();
  void make_steps(Channel& channel);
  Channel& channel_of(const TransportPost& post);
  bool is_small(const TransportPost& post) const;
  void give(MpiPost& post);
  void give_by_messages(MpiPost& post);
  bool has_come(MpiPost& post);
  void compare(MpiPost& post);
  void begin_bytes(MpiPost& post);
  void end(MpiPost& post);
  /// Withdraws a message that has not moved. No memory of it is used afterwards.
  void withdraw(MpiPost& post) noexcept;
  std::string withdrawn_error(const MpiPost& post) const;
  void tell_withdrawn(const MpiPost& post);
  bool quiesce(MpiPost& post, bool is_cancelled);

  MpiGroup& group_;
  MpiNews& news_;
  std::mutex mutex_;                     // guards what follows, and the posts
  std::vector<Channel> channels_;        // those that are not empty
  std::optional<std::string> failure_;   // why no message moves any more
  std::atomic<bool> has_steps_ = false;  // whether there is a channel
  MpiNews::Work work_;                   // makes steps; last, because it uses the others
};

}  // namespace tessera
