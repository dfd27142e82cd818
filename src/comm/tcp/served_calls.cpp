#include "comm/tcp/served_calls.h"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>

namespace tessera {
namespace {

constexpr int64_t kMostKeptBytes = int64_t{1} << 20;

/// Some elements after the other.
Tensor flat(std::byte* memory, int64_t elements, DType dtype) {
  return Tensor::wrap(memory, {elements}, dtype);
}

int64_t total_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

void ServedCalls::serve() {
  for (;;) serve_one();
}

void ServedCalls::serve_one() {
  WireReader call = receive_letter(socket_, letter_);
  const auto collective = call.take<Collective>();
  set_timeout_(std::chrono::milliseconds(call.take<int64_t>()));
  const auto given = call.take<int64_t>();
  const auto result = call.take<int64_t>();
  WireWriter answer;
  bool failed = true;
  try {
    make_room(given, result);
    socket_.receive(given_);
    const int64_t before = transport_.received_bytes();
    run(collective, call);
    answer.put_text("");
    answer.put(transport_.received_bytes() - before);
    failed = false;
  } catch (const ConnectionLost&) {
    throw;  // or the letter is none of ours
  } catch (const std::exception& error) {
    answer.put_text(error.what());
  }
  send_letter(socket_, answer);
  if (!failed) socket_.send(result_);
  give_room_back();
}

/// Throws Error if there is no memory for the operands. What the rank gives is passed over then.
void ServedCalls::make_room(int64_t given, int64_t result) {
  try {
    given_.resize(static_cast<size_t>(given));
    result_.resize(static_cast<size_t>(result));
  } catch (const std::bad_alloc&) {
    std::array<std::byte, 4096> passed_over;
    for (int64_t left = given; left > 0; left -= std::ssize(passed_over)) {
      socket_.receive(std::span(passed_over)
                          .first(static_cast<size_t>(std::min(left, std::ssize(passed_over)))));
    }
    throw Error("the first rank has no memory for a call's operands of {} bytes", given + result);
  }
}

/// Large operands are rare: loads of checkpoints. Their memory is not kept for each rank.
void ServedCalls::give_room_back() {
  for (std::vector<std::byte>* memory : {&given_, &result_}) {
    if (std::ssize(*memory) > kMostKeptBytes) std::vector<std::byte>().swap(*memory);
  }
}

void ServedCalls::run(Collective collective, WireReader& call) {
  if (collective == Collective::message) return exchange(call);
  OwnedMark owned = call.take_mark();
  const Fingerprint& mark = owned.get();
  const int64_t size = dtype_size(mark.dtype);
  const auto elements_of = [&](const std::vector<std::byte>& bytes) {
    return std::ssize(bytes) / size;
  };
  const Tensor from = flat(given_.data(), elements_of(given_), mark.dtype);
  const Tensor to = flat(result_.data(), elements_of(result_), mark.dtype);
  switch (collective) {
    case Collective::all_gather:
      return transport_.all_gather(mark, call.take_layout(), from, to);
    case Collective::reduce_scatter:
      return transport_.reduce_scatter(mark, call.take_layout(), from, to);
    case Collective::all_reduce:
      return transport_.all_reduce(mark, from, to);
    case Collective::all_to_all:
      return transport_.all_to_all(mark, from, to);
    case Collective::all_to_all_rows: {
      const auto sent = call.take_all<int64_t>();
      const auto received = call.take_all<int64_t>();
      const auto row = call.take<int64_t>();
      return transport_.all_to_all_rows(mark, from.reshape({total_of(sent), row}), sent,
                                        to.reshape({total_of(received), row}), received);
    }
    case Collective::broadcast: {
      const auto root = call.take<int>();
      if (root == position_) return transport_.broadcast(mark, root, from);
      return transport_.broadcast(mark, root, to);
    }
    case Collective::barrier:
      return transport_.barrier(mark);
    case Collective::message:
      break;
  }
  throw ConnectionLost("a call of another kind has come");
}

void ServedCalls::exchange(WireReader& call) {
  std::vector<OwnedMark> marks;
  std::vector<MarkedMessage> sends;
  std::vector<MarkedMessage> receives;
  const auto counts = call.take_all<int64_t>();
  if (counts.size() != 2) throw ConnectionLost("a call of another kind has come");
  marks.reserve(static_cast<size_t>(total_of(counts)));  // messages refer to their names
  const auto take = [&](int64_t count, std::byte* memory, std::vector<MarkedMessage>& messages) {
    for (int64_t i = 0; i < count; ++i) {
      const Fingerprint& mark = marks.emplace_back(call.take_mark()).get();
      const auto peer = call.take<int>();
      const auto elements = call.take<int64_t>();
      messages.push_back(
          {.mark = mark, .peer = peer, .tensor = flat(memory, elements, mark.dtype)});
      memory += messages.back().tensor.bytes();
    }
  };
  take(counts[0], given_.data(), sends);
  take(counts[1], result_.data(), receives);
  transport_.exchange(sends, receives);
}

}  // namespace tessera
