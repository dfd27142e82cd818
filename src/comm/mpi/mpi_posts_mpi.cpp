#include "comm/mpi/mpi_posts_mpi.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/mpi/message_mark.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_paged_messages_mpi.h"
#include "comm/mpi/staging.h"

// A post goes from to_give to to_compare and to moving (Channel), in the order of the posts. Only
// messages about which the ranks agree move, so they fit, and MPI matches them in this order.

namespace tessera {
namespace {

// The tags of MPI's messages. MpiMeeting has the tag 3 on the communicator of marks, MpiPieces the
// tag 0 on that of data.
constexpr int kHeader = 1;  // the mark of a sender, with the bytes of a small message
constexpr int kAnswer = 2;  // the mark of a receiver
constexpr int kBytes = 1;   // of large messages

constexpr int64_t kMarkBytes = sizeof(MessageMark);
/// The longest wait, in an error, for the end of a message that is under way when it is withdrawn.
constexpr std::chrono::seconds kMovePatience{2};

void copy(const std::byte* from, int64_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

/// A message that this rank has posted. The lock of its MpiPosts guards all members.
class MpiPost final : public TransportPost {
 public:
  /// The states, in their order.
  enum class State : uint8_t { none, waiting, moving, moved };

  MpiPost(MpiPosts& owner, const MarkedMessage& message, bool sent)
      : TransportPost(message, sent), own_mark(MessageMark::of(message.mark)), owner_(owner) {}
  ~MpiPost() override { owner_.withdraw(*this); }

  std::byte* own_header() const { return headers.get() + own_header_begin; }
  /// Returns the peer's mark, if it came by a message, and the bytes after it.
  std::byte* other_header() const { return headers.get(); }

  MessageMark own_mark;
  State state = State::none;
  std::vector<MPI_Request> requests;
  // Only if the marks are given by messages:
  std::unique_ptr<std::byte[]> headers;  // the peer's header, in whole pages, and this rank's
  int64_t own_header_begin = 0;
  MPI_Request first_page = MPI_REQUEST_NULL;  // of the peer's header; the others are in requests

 private:
  MpiPosts& owner_;
};

MpiPosts::MpiPosts(MpiGroup& group, MpiNews& news)
    : group_(group), news_(news), work_(news, [this] {
        if (!has_steps_) return;
        const Lock lock(mutex_, std::try_to_lock);
        if (lock.owns_lock()) make_steps();
      }) {}

std::unique_ptr<TransportPost> MpiPosts::post(const MarkedMessage& message, bool sent) {
  auto post = std::make_unique<MpiPost>(*this, message, sent);
  const Lock lock(mutex_);
  if (failure_) throw Error("{}", *failure_);
  channel_of(*post).to_give.push_back(post.get());
  post->state = MpiPost::State::waiting;
  make_steps();
  return post;
}

void MpiPosts::wait(std::span<TransportPost* const> posts) {
  using State = MpiPost::State;
  const auto have_reached = [&](State least) {
    const Lock lock(mutex_);
    make_steps();
    const bool all = std::ranges::all_of(posts, [&](const TransportPost* post) {
      return static_cast<const MpiPost*>(post)->state >= least;
    });
    if (!all && failure_) throw Error("{}", *failure_);
    return all;
  };
  std::vector<int> peers;
  for (const TransportPost* const post : posts) {
    const bool is_known = std::ranges::find(peers, post->peer()) != peers.end();
    if (post->peer() != group_.position() && !is_known) peers.push_back(post->peer());
  }
  const Fingerprint& mark = first_to_move(posts).mark();
  // A poll takes some 20 ns in shared memory. If ranks share a processor, a message takes as long
  // as the brief polls.
  group_.wait_for(mark, [&] { return have_reached(State::moving); }, peers,
                  {.brief_polls = group_.mail() != nullptr ? 250 : 64});
  group_.wait_for(mark, [&] { return have_reached(State::moved); }, peers,
                  {.brief_polls = 400, .between = Backoff::Between::yields});
}

const TransportPost& MpiPosts::first_to_move(std::span<TransportPost* const> posts) {
  const Lock lock(mutex_);
  const auto first = std::ranges::find_if(posts, [](const TransportPost* post) {
    return static_cast<const MpiPost*>(post)->state != MpiPost::State::moved;
  });
  return first == posts.end() ? *posts.front() : **first;
}

/// Makes the steps that can be made now. Keeps their error for the waits of the group.
void MpiPosts::make_steps() {
  if (failure_) return;
  try {
    for (Channel& channel : channels_) make_steps(channel);
  } catch (const Error& error) {
    failure_ = error.what();
  }
  std::erase_if(channels_, [](const Channel& channel) { return channel.is_empty(); });
  has_steps_ = !channels_.empty() && !failure_;
}

void MpiPosts::make_steps(Channel& channel) {
  const auto pass_first = [](std::vector<MpiPost*>& from, std::vector<MpiPost*>& to) {
    to.push_back(from.front());
    from.erase(from.begin());
  };
  SharedMail* const mail = group_.mail();
  while (!channel.to_give.empty() &&
         (mail == nullptr || mail->can_give(channel.peer, channel.sent))) {
    give(*channel.to_give.front());
    pass_first(channel.to_give, channel.to_compare);
  }
  while (!channel.to_compare.empty() && has_come(*channel.to_compare.front())) {
    compare(*channel.to_compare.front());
    pass_first(channel.to_compare, channel.moving);
  }
  std::erase_if(channel.moving, [this](MpiPost* post) {
    const bool is_done = post->requests.empty() || are_done(post->requests);
    if (is_done) end(*post);
    return is_done;
  });
}

/// Returns the channel of a message; makes it if it was empty.
MpiPosts::Channel& MpiPosts::channel_of(const TransportPost& post) {
  const auto found = std::ranges::find_if(channels_, [&](const Channel& channel) {
    return channel.peer == post.peer() && channel.sent == post.sent();
  });
  if (found != channels_.end()) return *found;
  has_steps_ = true;
  return channels_.emplace_back(Channel{.peer = post.peer(), .sent = post.sent()});
}

/// Returns whether the bytes of a message go with its sender's mark.
bool MpiPosts::is_small(const TransportPost& post) const {
  const int64_t max_bytes = group_.mail() != nullptr ? group_.mail()->max_bytes() : kSmallCallBytes;
  return post.tensor().bytes() <= max_bytes;
}

/// Gives this rank's mark to the peer, and gets ready for the bytes of a large message.
void MpiPosts::give(MpiPost& post) {
  const Tensor& tensor = post.tensor();
  if (!post.sent() && !is_small(post)) {
    begin_receives(tensor.raw(), tensor.bytes(), post.peer(), kBytes, group_.data(), post.requests);
  }
  SharedMail* const mail = group_.mail();
  if (mail == nullptr) return give_by_messages(post);
  if (post.sent() && is_small(post)) {
    copy(tensor.raw(), tensor.bytes(), mail->next_bytes(post.peer()));
  }
  mail->give(post.peer(), post.sent(), post.own_mark);
}

/// Sends this rank's header, and begins to receive the peer's. Both are sent in pages, which MPI
/// sends without asking the receiver first (MpiPagedMessages): their lengths may differ if the
/// marks do.
void MpiPosts::give_by_messages(MpiPost& post) {
  constexpr int64_t kPage = MpiPagedMessages::kPageBytes;
  const Tensor& tensor = post.tensor();
  const int64_t bytes = is_small(post) ? tensor.bytes() : 0;
  const int64_t own = kMarkBytes + (post.sent() ? bytes : 0);
  const int64_t others = kMarkBytes + (post.sent() ? 0 : bytes);
  post.own_header_begin = MpiPagedMessages::room(others);
  post.headers =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(post.own_header_begin + own));
  for (int64_t done = 0; done < others; done += kPage) {
    const MPI_Request page = begin_receive(post.other_header() + done, kPage, post.peer(),
                                           post.sent() ? kAnswer : kHeader, group_.marks());
    if (done == 0) {
      post.first_page = page;
    } else {
      post.requests.push_back(page);
    }
  }
  std::memcpy(post.own_header(), &post.own_mark, sizeof post.own_mark);
  if (post.sent()) copy(tensor.raw(), bytes, post.own_header() + kMarkBytes);
  for (int64_t done = 0; done < own; done += kPage) {
    post.requests.push_back(begin_send(post.own_header() + done, std::min(kPage, own - done),
                                       post.peer(), post.sent() ? kHeader : kAnswer,
                                       group_.marks()));
  }
}

/// Returns whether the peer's mark of a message has come.
bool MpiPosts::has_come(MpiPost& post) {
  if (group_.mail() != nullptr) return group_.mail()->has_come(post.peer(), post.sent());
  return are_done(std::span(&post.first_page, 1));
}

/// Compares the marks of a message, and begins to move its bytes. Throws Error if the marks differ.
void MpiPosts::compare(MpiPost& post) {
  SharedMail* const mail = group_.mail();
  const MessageMark& other = mail != nullptr
                                 ? mail->mark_of(post.peer(), post.sent())
                                 : *reinterpret_cast<const MessageMark*>(post.other_header());
  if (other.number != post.own_mark.number) {
    const MessageMark& sent = post.sent() ? post.own_mark : other;
    const MessageMark& received = post.sent() ? other : post.own_mark;
    const int own_rank = group_.ranks()[static_cast<size_t>(group_.position())];
    const int peer = group_.ranks()[static_cast<size_t>(post.peer())];
    throw Error("{}",
                different_messages_text(group_.text(), post.sent() ? own_rank : peer, sent.text(),
                                        post.sent() ? peer : own_rank, received.text()));
  }
  begin_bytes(post);
  if (mail != nullptr) mail->take(post.peer(), post.sent());
  post.state = MpiPost::State::moving;
}

/// Begins to move the bytes of a message about which the ranks agree.
void MpiPosts::begin_bytes(MpiPost& post) {
  const Tensor& tensor = post.tensor();
  if (!is_small(post)) {
    if (post.sent()) {
      begin_sends(tensor.raw(), tensor.bytes(), post.peer(), kBytes, group_.data(), post.requests);
    }
  } else if (!post.sent() && group_.mail() != nullptr) {
    copy(group_.mail()->bytes_from(post.peer()), tensor.bytes(), tensor.raw());
  }
}

/// Ends a message whose requests are done.
void MpiPosts::end(MpiPost& post) {
  const Tensor& tensor = post.tensor();
  if (post.headers != nullptr && !post.sent() && is_small(post)) {
    copy(post.other_header() + kMarkBytes, tensor.bytes(), tensor.raw());
  }
  post.state = MpiPost::State::moved;
}

void MpiPosts::withdraw(MpiPost& post) noexcept {
  using State = MpiPost::State;
  bool breaks_group = false;
  bool is_cancelled = false;
  {
    const Lock lock(mutex_);
    if (post.state == State::none || post.state == State::moved) return;
    for (Channel& channel : channels_) {
      for (auto* const posts : {&channel.to_give, &channel.to_compare, &channel.moving}) {
        std::erase(*posts, &post);
      }
    }
    const bool is_broken = failure_ || group_.is_broken();
    is_cancelled = is_broken || post.state == State::waiting;
    // Later messages of the channel cannot move: MPI would match them with this one.
    if (is_cancelled && !failure_) failure_ = withdrawn_error(post);
    breaks_group = is_cancelled && !is_broken;
  }
  try {
    if (breaks_group) tell_withdrawn(post);
    if (!quiesce(post, is_cancelled) && !is_cancelled) tell_withdrawn(post);
  } catch (const std::exception&) {  // of MPI: a destructor cannot throw it
    group_.keep(post.tensor(), std::move(post.headers));
  }
}

std::string MpiPosts::withdrawn_error(const MpiPost& post) const {
  const int own_rank = group_.ranks()[static_cast<size_t>(group_.position())];
  return withdrawn_text(post.mark(), group_.text(), own_rank);
}

void MpiPosts::tell_withdrawn(const MpiPost& post) {
  news_.tell_withdrawn(group_.ranks(), group_.text(), withdrawn_error(post));
}

/// Waits until MPI does not use the memory of a message any more. If a message that is under way
/// does not end, because its other rank is stopped, keeps the memory for MPI, and returns false.
bool MpiPosts::quiesce(MpiPost& post, bool is_cancelled) {
  std::vector<MPI_Request>& requests = post.requests;
  requests.push_back(post.first_page);
  if (is_cancelled) {
    for (MPI_Request& request : requests) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
    }
  }
  for (Backoff backoff; !are_done(requests); backoff.wait()) {
    news_.listen();
    if (backoff.waited() < kMovePatience) continue;
    cancel(requests);
    group_.keep(post.tensor(), std::move(post.headers));
    return false;
  }
  return true;
}

}  // namespace tessera
