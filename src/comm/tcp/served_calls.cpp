#include "comm/tcp/served_calls.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

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
  given_.resize(static_cast<size_t>(call.take<int64_t>()));
  result_.resize(static_cast<size_t>(call.take<int64_t>()));
  socket_.receive(given_);
  WireWriter answer;
  const int64_t before = transport_.received_bytes();
  bool failed = false;
  try {
    run(collective, call);
    answer.put_text("");
    answer.put(transport_.received_bytes() - before);
  } catch (const ConnectionLost&) {
    throw;  // the letter is none of ours
  } catch (const std::exception& error) {
    failed = true;
    answer.put_text(error.what());
  }
  send_letter(socket_, answer);
  if (!failed) socket_.send(result_);
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
      messages.push_back(
          {.mark = mark, .peer = peer, .tensor = flat(memory, mark.shape.elements(), mark.dtype)});
      memory += messages.back().tensor.bytes();
    }
  };
  take(counts[0], given_.data(), sends);
  take(counts[1], result_.data(), receives);
  transport_.exchange(sends, receives);
}

}  // namespace tessera
