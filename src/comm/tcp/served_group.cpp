#include "comm/tcp/served_group.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace tessera {
namespace {

/// Returns contiguous elements as a tensor.
Tensor flat(std::byte* memory, int64_t elements, DType dtype) {
  return Tensor::wrap(memory, {elements}, dtype);
}

/// Returns memory; null if there is none. It takes none of the machine's memory until it is
/// written.
std::unique_ptr<std::byte[]> reserve(int64_t bytes) {
  return std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
}

int64_t rows_of(const std::vector<int64_t>& counts) {
  int64_t rows = 0;
  for (const int64_t count : counts) rows += count;
  return rows;
}

}  // namespace

void AnswerSocket::send(const WireWriter& answer, std::span<const std::byte> result) {
  const std::scoped_lock lock(mutex_);
  try {
    send_message(socket_, answer);
    socket_.send(result);
  } catch (const ConnectionLost&) {
    // The thread that reads from the connection finds that too.
  }
}

ServedGroup::ServedGroup(AnswerSocket& answers, World& world, int number, int rank,
                         std::vector<int> ranks, std::string lane)
    : answers_(answers),
      world_(world),
      number_(number),
      rank_(rank),
      ranks_(std::move(ranks)),
      position_(static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin())),
      lane_(std::move(lane)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void ServedGroup::begin(WireReader& request) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::idle) throw BadMessage("a call in a group that is not ready for one");
  }
  call_ = read_call(request, ranks_, position_);
  world_.set_timeout(rank_, call_.timeout);
  given_ = receive_given();
  set_state(State::called);
}

/// Receives what the rank gives, or skips it if there is no memory for it.
ServedGroup::Bytes ServedGroup::receive_given() {
  TcpSocket& socket = answers_.socket();
  Bytes given = reserve(call_.given_bytes);
  if (given != nullptr) {
    socket.receive(std::span(given.get(), static_cast<size_t>(call_.given_bytes)));
    return given;
  }
  std::array<std::byte, 4096> passed_over;
  for (int64_t left = call_.given_bytes; left > 0; left -= std::ssize(passed_over)) {
    const auto next = static_cast<size_t>(std::min(left, std::ssize(passed_over)));
    socket.receive(std::span(passed_over).first(next));
  }
  return given;
}

void ServedGroup::set_state(State state) {
  {
    const std::scoped_lock lock(mutex_);
    state_ = state;
  }
  changed_.notify_all();
}

void ServedGroup::run(const std::stop_token& stop) {
  if (!join()) return;
  while (await_call(stop)) make_call();
}

/// Asks for the group on behalf of the rank. Returns whether the rank has it.
bool ServedGroup::join() {
  std::string error;
  try {
    transport_ = world_.transport(rank_, ranks_, lane_);
    world_.await_group(rank_, ranks_, lane_);
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  set_state(error.empty() ? State::idle : State::broken);
  WireWriter answer;
  answer.put(number_);
  answer.put_text(error);
  answer.put<int64_t>(0);
  answers_.send(answer, {});
  return error.empty();
}

bool ServedGroup::await_call(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop, [&] { return state_ == State::called; })) return false;
  state_ = State::busy;
  return true;
}

void ServedGroup::make_call() {
  const int64_t before = transport_->received_bytes();
  Bytes result;
  std::string error;
  try {
    move(result);
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  WireWriter answer;
  answer.put(number_);
  answer.put_text(error);
  answer.put(transport_->received_bytes() - before);
  const auto bytes = error.empty() ? static_cast<size_t>(call_.result_bytes) : 0;
  given_.reset();
  set_state(State::idle);  // the next request may come as soon as the reply is sent
  answers_.send(answer, std::span(result.get(), bytes));
}

void ServedGroup::move(Bytes& result) {
  result = reserve(call_.result_bytes);
  if (given_ == nullptr || result == nullptr) {
    throw Error("the first rank has no memory for a call's operands of {} bytes",
                call_.given_bytes + call_.result_bytes);
  }
  if (call_.moves == Collective::message) return exchange(result.get());
  const Fingerprint& mark = call_.mark.get();
  const int64_t size = dtype_size(mark.dtype);
  const Tensor from = flat(given_.get(), call_.given_bytes / size, mark.dtype);
  const Tensor to = flat(result.get(), call_.result_bytes / size, mark.dtype);
  switch (call_.moves) {
    case Collective::all_gather:
      return transport_->all_gather(mark, *call_.layout, from, to);
    case Collective::reduce_scatter:
      return transport_->reduce_scatter(mark, *call_.layout, from, to);
    case Collective::all_reduce:
      return transport_->all_reduce(mark, from, to);
    case Collective::all_to_all:
      return transport_->all_to_all(mark, from, to);
    case Collective::all_to_all_rows:
      return transport_->all_to_all_rows(
          mark, from.reshape({rows_of(call_.sent), call_.row}), call_.sent,
          to.reshape({rows_of(call_.received), call_.row}), call_.received);
    case Collective::broadcast:
      return transport_->broadcast(mark, call_.root, call_.root == position_ ? from : to);
    case Collective::barrier:
      return transport_->barrier(mark);
    case Collective::message:
      return;
  }
}

void ServedGroup::exchange(std::byte* result) {
  const auto marked = [](std::vector<TcpMessage>& messages, std::byte* memory) {
    std::vector<MarkedMessage> all;
    for (TcpMessage& message : messages) {
      const Fingerprint& mark = message.mark.get();
      all.push_back({.mark = mark,
                     .peer = message.peer,
                     .tensor = flat(memory, message.elements, mark.dtype)});
      memory += all.back().tensor.bytes();
    }
    return all;
  };
  const std::vector<MarkedMessage> sends = marked(call_.sends, given_.get());
  const std::vector<MarkedMessage> receives = marked(call_.receives, result);
  transport_->exchange(sends, receives);
}

}  // namespace tessera
