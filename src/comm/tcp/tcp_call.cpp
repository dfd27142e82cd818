#include "comm/tcp/tcp_call.h"

#include <algorithm>
#include <string_view>

#include "comm/reduce.h"

namespace tessera {
namespace {

// A request comes from another process, and its numbers decide how much memory this process
// allocates and copies. So each number is checked against the fingerprint and the group: first the
// fields of all calls, then those of the collective. The numbers of bytes are computed from checked
// numbers only.

/// The group in which a call is made, and the position of its caller.
struct Caller {
  std::span<const int> ranks;
  int position;

  int size() const { return static_cast<int>(ranks.size()); }
  int rank() const { return ranks[static_cast<size_t>(position)]; }
};

[[noreturn]] void refuse(const Fingerprint& mark, std::string_view why) {
  throw BadMessage("{} cannot be made: {}", mark.text(), why);
}

/// Returns the sum of some sizes. Throws BadMessage if it is more than kMostElements.
int64_t checked_sum(std::span<const int64_t> sizes, const Fingerprint& mark) {
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > kMostElements - sum) refuse(mark, "its rows are too many");
    sum += size;
  }
  return sum;
}

void take_layout(WireReader& request, const Caller& caller, TcpCall& call) {
  const Fingerprint& mark = call.mark.get();
  call.layout = request.take_layout(caller.size());
  if (call.layout->hash() != mark.layout || call.layout->elements() != mark.shape.elements()) {
    refuse(mark, "its pieces are those of another tensor");
  }
}

void take_rows(WireReader& request, const Caller& caller, TcpCall& call) {
  const Fingerprint& mark = call.mark.get();
  request.take_into(call.sent, call.received);
  call.row_elements = request.take_between<int64_t>(0, kMostElements, "the elements of a row");
  if (std::ssize(call.sent) != caller.size() || std::ssize(call.received) != caller.size()) {
    refuse(mark, "its numbers of rows are not those of the group");
  }
  for (const std::vector<int64_t>* rows : {&call.sent, &call.received}) {
    if (checked_sum(*rows, mark) > kMostElements / std::max<int64_t>(call.row_elements, 1)) {
      refuse(mark, "its rows are too many");
    }
  }
}

/// Takes the fields that a collective has after its fingerprint. Sets `given` and `result` to the
/// numbers of elements of the rank's operands and results.
void take_collective(WireReader& request, const Caller& caller, TcpCall& call, int64_t& given,
                     int64_t& result) {
  const Fingerprint& mark = call.mark.get();
  const int64_t whole = mark.shape.elements();
  switch (call.moves) {
    case Collective::all_gather:
      take_layout(request, caller, call);
      given = call.layout->elements(caller.position);
      result = whole;
      return;
    case Collective::reduce_scatter:
      take_layout(request, caller, call);
      given = whole;
      result = call.layout->elements(caller.position);
      return;
    case Collective::all_reduce:
      given = result = whole;
      return;
    case Collective::all_to_all:
    case Collective::all_to_all_rows:
      take_rows(request, caller, call);
      given = checked_sum(call.sent, mark) * call.row_elements;
      result = checked_sum(call.received, mark) * call.row_elements;
      return;
    case Collective::broadcast:
      call.root = request.take_between<int>(0, caller.size() - 1, "the root of a broadcast");
      if (mark.from != caller.ranks[static_cast<size_t>(call.root)]) {
        refuse(mark, "its root is another rank");
      }
      (call.root == caller.position ? given : result) = whole;
      return;
    case Collective::barrier:
      return;
    case Collective::message:
      refuse(mark, "messages are posted");
  }
}

}  // namespace

void put_call(WireWriter& request, std::chrono::milliseconds timeout, const TransportCall& call) {
  request.put(timeout, call.moves, call.mark);
  if (call.layout != nullptr) request.put(*call.layout);
  if (!call.sent.empty()) request.put(call.sent, call.received, call.row_elements);
  if (call.moves == Collective::broadcast) request.put(call.root);
}

TcpCall read_call(WireReader& request, std::span<const int> ranks, int position) {
  const Caller caller{ranks, position};
  TcpCall call;
  call.timeout = request.take_wait();
  call.moves = request.take_word<Collective>("a collective");
  call.mark = request.take_mark();
  const Fingerprint& mark = call.mark.get();
  if (call.moves != Collective::barrier && mark.collective != call.moves) {
    refuse(mark, "its operands are those of another call");
  }
  if (reduces(call.moves) && !can_reduce(mark.reduction, mark.dtype)) {
    refuse(mark, "its elements cannot be reduced so");
  }
  int64_t given = 0;
  int64_t result = 0;
  take_collective(request, caller, call, given, result);
  request.require_end();
  call.given_bytes = given * dtype_size(mark.dtype);
  call.result_bytes = result * dtype_size(mark.dtype);
  return call;
}

TcpMessage read_post(WireReader& request, std::span<const int> ranks, int position) {
  const Caller caller{ranks, position};
  TcpMessage message;
  message.sent = request.take_flag();
  message.mark = request.take_mark();
  message.peer = request.take_between<int>(0, caller.size() - 1, "the position of a message");
  message.elements = request.take_between<int64_t>(0, kMostElements, "the elements of a message");
  request.require_end();
  const Fingerprint& mark = message.mark.get();
  const int peer = caller.ranks[static_cast<size_t>(message.peer)];
  const bool right_ranks = message.sent ? mark.from == caller.rank() && mark.to == peer
                                        : mark.from == peer && mark.to == caller.rank();
  if (mark.collective != Collective::message || !right_ranks) {
    refuse(mark, "it is no message between these ranks");
  }
  // The message is empty if devices move the bytes.
  if (message.elements != 0 && message.elements != mark.shape.elements()) {
    refuse(mark, "its elements are not those of its shape");
  }
  return message;
}

TcpWait read_wait(WireReader& request) {
  TcpWait wait;
  request.take_last_into(wait.timeout, wait.posts);
  if (wait.posts.empty()) throw BadMessage("a wait for no messages");
  return wait;
}

}  // namespace tessera
