#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "comm/in_process/meeting.h"
#include "comm/wait_time.h"

// The channel from one rank to another has the posts of the rank that is ahead. A post of the other
// rank takes the first of them, and the two are matched. The first of the two ranks that waits then
// copies the bytes, for both. So a rank that sends need not wait for one that has only posted.

namespace tessera {

void Meeting::post(MeetingPost& post) {
  const Lock lock(mutex_);
  if (failure_) throw Error(*failure_);
  post.state_ = MeetingPost::State::posted;
  Channel& channel = channel_of(post);
  if (channel.posts.empty() || channel.sent == post.sent()) {
    channel.sent = post.sent();
    channel.posts.push_back(&post);
    return;
  }
  MeetingPost* const other = channel.posts.front();
  channel.posts.erase(channel.posts.begin());
  if (other == nullptr) {
    post.state_ = MeetingPost::State::forsaken;
  } else if (other->mark() != post.mark()) {
    const MeetingPost& sent = post.sent() ? post : *other;
    const MeetingPost& received = post.sent() ? *other : post;
    fail_locked(different_messages_text(text(), ranks_[sent.position_], sent.mark().text(),
                                        ranks_[received.position_], received.mark().text()));
  } else {
    post.other_ = other;
    other->other_ = &post;
    post.state_ = other->state_ = MeetingPost::State::matched;
    changed_.notify_all();
  }
}

void Meeting::wait(size_t position, std::span<TransportPost* const> posts) {
  if (posts.empty()) return;
  Lock lock(mutex_);
  if (failure_) throw Error(*failure_);
  last_calls_[position].begin(posts.front()->mark());
  std::span<TransportPost* const>& awaited = awaited_[position];
  awaited = posts;
  try {
    for (const size_t other : arrived_) check_messages(other, position);
    for (TransportPost* const post : posts) await_post(lock, static_cast<MeetingPost&>(*post));
  } catch (...) {
    awaited = {};
    last_calls_[position].fail();
    throw;
  }
  awaited = {};
  last_calls_[position].end();
}

/// Breaks the group if one rank waits in a collective, while another rank waits for a message that
/// the first has not posted: neither wait would end.
void Meeting::check_messages(size_t in_collective, size_t in_wait) {
  for (const TransportPost* const awaited : awaited_[in_wait]) {
    const auto& post = static_cast<const MeetingPost&>(*awaited);
    if (static_cast<size_t>(post.peer()) != in_collective) continue;
    if (post.state_ != MeetingPost::State::posted) continue;
    fail_locked(fmt::format(
        "the ranks of {} do not make the same call: {} made {}; {} made {}. A rank must "
        "send and receive, or post, all its messages before it makes a call of all ranks",
        text(), about_.text(ranks_[in_collective]), call_of(in_collective).mark.text(),
        about_.text(ranks_[in_wait]), post.mark().text()));
    throw Error(*failure_);
  }
}

/// Waits until a message has moved. Moves it if the other rank has posted it and does not move it.
void Meeting::await_post(Lock& lock, MeetingPost& post) {
  using State = MeetingPost::State;
  const auto peer = static_cast<size_t>(post.peer());
  wait_for(
      lock, post.position_, post.mark(), [&] { return post.state_ != State::posted; },
      [&](size_t other) { return other == peer; });
  if (post.state_ == State::forsaken) throw_withdrawn(lock, post);
  if (post.state_ == State::matched) move_bytes(lock, post);
  // Without a timeout: the other rank copies, which always ends.
  changed_.wait(lock, [&] { return post.state_ == State::moved; });
}

/// Copies the bytes of a message, without the lock, so that other ranks need not wait.
void Meeting::move_bytes(Lock& lock, MeetingPost& post) {
  MeetingPost& other = *post.other_;
  const Tensor& from = (post.sent() ? post : other).tensor();
  const Tensor& to = (post.sent() ? other : post).tensor();
  post.state_ = other.state_ = MeetingPost::State::copying;
  lock.unlock();
  if (to.bytes() > 0 && to.raw() != from.raw()) {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
  lock.lock();
  post.state_ = other.state_ = MeetingPost::State::moved;
  changed_.notify_all();
}

/// Throws the error of a message that the other rank has withdrawn. That rank may have done so
/// because it fails, so this rank first gives it time to say why.
void Meeting::throw_withdrawn(Lock& lock, const MeetingPost& post) {
  const auto peer = static_cast<size_t>(post.peer());
  changed_.wait_for(lock, kEndGrace, [&] { return failure_ || ended_[peer]; });
  if (!failure_) fail_locked(withdrawn_text(post.mark(), text(), ranks_[peer]));
  throw Error(*failure_);
}

void Meeting::withdraw(MeetingPost& post) {
  using State = MeetingPost::State;
  Lock lock(mutex_);
  if (post.state_ == State::copying) {
    changed_.wait(lock, [&] { return post.state_ == State::moved; });
  }
  if (post.state_ == State::matched) {
    post.other_->state_ = State::forsaken;
    post.other_->other_ = nullptr;
    changed_.notify_all();
  }
  if (post.state_ == State::posted) {
    // The place stays in the channel, so that later messages do not match those before them. There
    // is none if the two ranks do not agree about the message.
    std::vector<MeetingPost*>& posts = channel_of(post).posts;
    std::ranges::replace(posts, &post, nullptr);
  }
}

Meeting::Channel& Meeting::channel_of(const MeetingPost& post) {
  const auto peer = static_cast<size_t>(post.peer());
  const size_t from = post.sent() ? post.position_ : peer;
  const size_t to = post.sent() ? peer : post.position_;
  return channels_[from * ranks_.size() + to];
}

}  // namespace tessera
