#include "comm/tcp/serve_rank.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/tcp/tcp_call.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/wire.h"
#include "comm/transport.h"

// The thread that runs serve_rank() reads the requests. A request for a group makes a ServedGroup
// with a thread of its own. A request for a call is checked and received with its operands, and
// handed to the thread of its group. That thread makes the call by a transport of this process and
// sends the reply. So a call that waits for other ranks does not delay requests of other groups. A
// message is posted at once, by the thread that reads the requests, and its bytes are held here. A
// rank that leaves a group ends its thread.

namespace tessera {
namespace {

/// The most groups that a rank has at a time, and so the most threads that it can start here. A
/// mesh has a few groups for each of its axes and lanes.
constexpr int kMostGroups = 1024;
constexpr size_t kMostLaneBytes = 256;
/// The most messages of a group that a rank has posted and not awaited.
constexpr size_t kMostPosts = size_t{1} << 20;

using Bytes = std::unique_ptr<std::byte[]>;

/// Returns memory that is not initialized; null if there is none. A rank states the size before it
/// sends the bytes, but a false size costs little: the system provides pages when they are written.
Bytes reserve(int64_t bytes) {
  return Bytes(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
}

/// The connection for the replies to one rank's requests. The threads of its groups share it.
class ReplySocket {
 public:
  explicit ReplySocket(TcpSocket& socket) : socket_(socket) {}

  TcpSocket& socket() { return socket_; }

  /// Sends a reply and the bytes of the results that follow it.
  void send(int group, const std::string& error, int64_t received_bytes,
            std::span<const std::span<const std::byte>> results) {
    const WireWriter reply(group, error, received_bytes);
    const std::scoped_lock lock(mutex_);
    try {
      send_message(socket_, reply);
      for (const auto& result : results) socket_.send(result);
    } catch (const ConnectionLost&) {
      // serve_rank(), which reads from the connection, finds the loss too and ends.
    }
  }

 private:
  TcpSocket& socket_;
  std::mutex mutex_;
};

/// One group of the rank. Its thread makes the calls that the rank requests, one at a time.
class ServedGroup {
 public:
  /// Serves the group that `rank`, one of `ranks`, calls `number`. Refers to `replies` and `world`.
  ServedGroup(ReplySocket& replies, World& world, int number, int rank, std::vector<int> ranks,
              std::string lane)
      : replies_(replies),
        world_(world),
        number_(number),
        rank_(rank),
        ranks_(std::move(ranks)),
        position_(static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin())),
        lane_(std::move(lane)),
        thread_([this](const std::stop_token& stop) {
          if (!join()) return;
          while (await_call(stop)) awaited_.empty() ? make_call() : wait_for_posts();
        }) {}

  /// Throws BadMessage if the group is not ready for a request.
  void require_ready() {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::idle) throw BadMessage("a call in a group that is not ready for one");
  }

  /// Handles the rest of a request. Throws BadMessage if it is not one of the group, or if the
  /// group is not ready for one.
  void handle(CallRequest kind, WireReader& request) {
    require_ready();
    // The thread waits while the state is idle. So what both use can be changed without the lock.
    switch (kind) {
      case CallRequest::group:  // serve_rank() handles these two
      case CallRequest::leave:
        return;
      case CallRequest::call:
        return begin_call(request);
      case CallRequest::wait:
        return begin_wait(request);
      case CallRequest::post:
        return post(request);
      case CallRequest::withdraw:
        return withdraw(request);
    }
  }

 private:
  enum class State : uint8_t {
    busy,    ///< the thread joins the group or makes a call
    idle,    ///< the thread waits for a call
    called,  ///< call_ or awaited_ is ready for the thread
    broken,  ///< the thread could not join the group, and has ended
  };

  /// A message that the rank has posted.
  struct ServedPost {
    TcpMessage message;
    Bytes memory;  ///< of the message
    std::unique_ptr<TransportPost> posted;
    std::string error;  ///< if it could not be posted
  };

  /// Reads a call, receives its operands, and lets the thread make the call.
  void begin_call(WireReader& request) {
    call_ = read_call(request, ranks_, position_);
    world_.set_timeout(rank_, call_.timeout);
    given_ = receive_bytes(call_.given_bytes);
    set_state(State::called);
  }

  /// Reads the numbers of posts, and lets the thread wait for them.
  void begin_wait(WireReader& request) {
    const TcpWait wait = read_wait(request);
    for (const int64_t number : wait.posts) awaited_.push_back(take_post(number));
    world_.set_timeout(rank_, wait.timeout);
    set_state(State::called);
  }

  /// Reads a message, with its bytes if the rank sends it, and posts it.
  void post(WireReader& request) {
    if (posts_.size() >= kMostPosts) throw BadMessage("more than {} posts in a group", kMostPosts);
    ServedPost& post = posts_[post_count_++];
    post.message = read_post(request, ranks_, position_);
    const TcpMessage& message = post.message;
    post.memory = message.sent ? receive_bytes(message.bytes()) : reserve(message.bytes());
    if (post.memory == nullptr) {
      post.error = no_memory_text(message.bytes());
      return;
    }
    const Fingerprint& mark = post.message.mark.get();
    const Tensor tensor = Tensor::wrap(post.memory.get(), {message.elements}, mark.dtype);
    try {
      post.posted = transport_->post({mark, message.peer, tensor}, message.sent);
    } catch (const Error& error) {
      post.error = error.what();
    }
  }

  /// Reads the number of a post, and withdraws its message.
  void withdraw(WireReader& request) { take_post(request.take_last<int64_t>()); }

  /// Removes a post from posts_. Throws BadMessage if there is none with this number.
  ServedPost take_post(int64_t number) {
    auto found = posts_.extract(number);
    if (found.empty()) throw BadMessage("a message that was not posted, or was awaited");
    return std::move(found.mapped());
  }

  static std::string no_memory_text(int64_t bytes) {
    return fmt::format("the first rank has no memory for a call's operands of {} bytes", bytes);
  }

  void set_state(State state) {
    {
      const std::scoped_lock lock(mutex_);
      state_ = state;
    }
    changed_.notify_all();
  }

  /// Receives bytes that the rank gives. If there is no memory for them, returns null, but reads
  /// and drops them, so that the next request can be read.
  Bytes receive_bytes(int64_t bytes) {
    TcpSocket& socket = replies_.socket();
    Bytes given = reserve(bytes);
    if (given != nullptr) {
      socket.receive(std::span(given.get(), static_cast<size_t>(bytes)));
      return given;
    }
    std::array<std::byte, 4096> dropped;
    for (int64_t remaining = bytes; remaining > 0; remaining -= std::ssize(dropped)) {
      const auto next = static_cast<size_t>(std::min(remaining, std::ssize(dropped)));
      socket.receive(std::span(dropped).first(next));
    }
    return nullptr;
  }

  /// Joins the group in the world on behalf of the rank, and replies. Returns whether it succeeded.
  bool join() {
    std::string error;
    try {
      transport_ = world_.transport(rank_, ranks_, lane_);
      world_.await_group(rank_, ranks_, lane_);
    } catch (const std::exception& failure) {
      error = failure.what();
      transport_.reset();
    }
    set_state(error.empty() ? State::idle : State::broken);
    replies_.send(number_, error, 0, {});
    return error.empty();
  }

  /// Waits for a call. Returns false if there will be none.
  bool await_call(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return state_ == State::called; })) return false;
    state_ = State::busy;
    return true;
  }

  using Results = std::vector<std::span<const std::byte>>;

  void make_call() {
    const Bytes result = reserve(call_.result_bytes);
    const Results results{{result.get(), static_cast<size_t>(call_.result_bytes)}};
    reply_after(results, [&] { move_bytes(result.get()); });
  }

  /// Waits for the messages of awaited_. The results are those that were received.
  void wait_for_posts() {
    const std::vector<ServedPost> posts = std::exchange(awaited_, {});
    std::vector<TransportPost*> posted;
    Results results;
    for (const ServedPost& post : posts) {
      posted.push_back(post.posted.get());
      if (post.message.sent) continue;
      results.emplace_back(post.memory.get(), static_cast<size_t>(post.message.bytes()));
    }
    reply_after(results, [&] {
      for (const ServedPost& post : posts) {
        if (!post.error.empty()) throw Error("{}", post.error);
      }
      transport_->wait(posted);
    });
  }

  /// Calls an action, and replies with the results, or with the error that the action throws.
  template <typename Action>
  void reply_after(const Results& results, Action&& action) {
    const int64_t before = transport_->received_bytes();
    std::string error;
    try {
      action();
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    const int64_t received = transport_->received_bytes() - before;
    given_.reset();
    set_state(State::idle);  // the next request may come as soon as the reply is sent
    replies_.send(number_, error, received, error.empty() ? results : Results{});
  }

  /// Makes the call, with its result in `result`, which is null if there is no memory for it.
  void move_bytes(std::byte* result) {
    if (given_ == nullptr || result == nullptr) {
      throw Error("{}", no_memory_text(call_.given_bytes + call_.result_bytes));
    }
    const Fingerprint& mark = call_.mark.get();
    const int64_t size = dtype_size(mark.dtype);
    const Tensor from = Tensor::wrap(given_.get(), {call_.given_bytes / size}, mark.dtype);
    const Tensor to = Tensor::wrap(result, {call_.result_bytes / size}, mark.dtype);
    transport_->make({.mark = mark,
                      .moves = call_.moves,
                      .layout = call_.layout ? &*call_.layout : nullptr,
                      .from = from,
                      .to = to,
                      .sent = call_.sent,
                      .received = call_.received,
                      .row_elements = call_.row_elements,
                      .root = call_.root});
  }

  ReplySocket& replies_;
  World& world_;
  int number_;
  int rank_;
  std::vector<int> ranks_;
  int position_;  // of the rank in ranks_
  std::string lane_;
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;  // guards the state
  std::condition_variable_any changed_;
  State state_ = State::busy;
  TcpCall call_;
  Bytes given_;  // the bytes that the rank gives to the call; null if there is no memory for them
  std::map<int64_t, ServedPost> posts_;  // by number; messages that the rank has not awaited
  int64_t post_count_ = 0;
  std::vector<ServedPost> awaited_;  // messages for which the rank waits, if it does not call
  std::jthread thread_;
};

/// Reads a request for a group. Throws BadMessage unless the rank and the others of the group are
/// different ranks of the world.
void open_group(WireReader& request, ReplySocket& replies, World& world, int rank,
                std::map<int, ServedGroup>& groups) {
  const auto number = request.take<int>();
  if (groups.contains(number)) throw BadMessage("two groups with the number {}", number);
  if (std::ssize(groups) >= kMostGroups) throw BadMessage("more than {} groups", kMostGroups);
  const auto timeout = request.take_wait();
  std::vector<int> ranks;
  std::string lane;
  request.take_last_into(ranks, lane);
  if (std::ssize(ranks) > world.ranks() || lane.size() > kMostLaneBytes) {
    throw BadMessage("a group of {} ranks with a lane of {} bytes", ranks.size(), lane.size());
  }
  std::vector<bool> is_member(static_cast<size_t>(world.ranks()));
  for (const int member : ranks) {
    if (member < 0 || member >= world.ranks() || is_member[static_cast<size_t>(member)]) {
      throw BadMessage("a group with the rank {}, of {} ranks", member, world.ranks());
    }
    is_member[static_cast<size_t>(member)] = true;
  }
  if (!is_member[static_cast<size_t>(rank)]) throw BadMessage("a group without the rank itself");
  world.set_timeout(rank, timeout);
  groups.try_emplace(number, replies, world, number, rank, std::move(ranks), std::move(lane));
}

}  // namespace

void serve_rank(TcpSocket& socket, World& world, int rank,
                const std::function<void(const std::exception& error)>& on_end) {
  ReplySocket replies(socket);
  std::map<int, ServedGroup> groups;  // by number; its destructor waits for the groups' threads
  try {
    std::vector<std::byte> memory;
    for (;;) {
      WireReader request = receive_message(socket, memory);
      const auto kind = request.take_enum(CallRequest::leave, "a kind of request");
      if (kind == CallRequest::group) {
        open_group(request, replies, world, rank, groups);
        continue;
      }
      const auto group = groups.find(request.take<int>());
      if (group == groups.end()) throw BadMessage("a call in a group that was not asked for");
      if (kind == CallRequest::leave) {
        request.require_end();
        group->second.require_ready();
        groups.erase(group);
        continue;
      }
      group->second.handle(kind, request);
    }
  } catch (const std::exception& error) {
    on_end(error);
  }
}

}  // namespace tessera
