#include "comm/in_process/in_process_transport.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

int64_t sum_before(std::span<const int64_t> counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end),
                         int64_t{0});
}

/// The transport among threads. Each collective is enter(), copies from the other ranks' memory,
/// and leave(). Nothing may throw between enter() and leave(), because the others wait for this
/// rank.
class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Meeting> meeting, size_t position)
      : meeting_(std::move(meeting)), position_(position), addends_(meeting_->ranks().size()) {}

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    enter({.mark = &mark,
           .moves = Collective::all_gather,
           .layout = &layout,
           .from = from.raw(),
           .to = to.raw()});
    const int64_t size = dtype_size(to.dtype());
    for_others_first([&](size_t other, const RankCall& call) {
      layout.for_each_block(
          static_cast<int>(other), [&](int64_t in_whole, int64_t in_piece, int64_t length) {
            take(other, call.from + in_piece * size, to.raw() + in_whole * size, length * size);
          });
    });
    leave();
  }

  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    enter({.mark = &mark,
           .moves = Collective::reduce_scatter,
           .layout = &layout,
           .from = from.raw(),
           .to = to.raw()});
    const int64_t size = dtype_size(to.dtype());
    collect_addends();
    layout.for_each_block(
        static_cast<int>(position_), [&](int64_t in_whole, int64_t in_piece, int64_t length) {
          take_reduced(mark, to.dtype(), in_whole, length, to.raw() + in_piece * size);
        });
    leave();
  }

  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    enter({.mark = &mark, .moves = Collective::all_reduce, .from = from.raw(), .to = to.raw()});
    const int64_t size = dtype_size(to.dtype());
    const auto begin = [&](size_t position) {
      return slice_begin(to.elements(), ranks(), static_cast<int>(position));
    };
    const int64_t first = begin(position_);
    collect_addends();
    take_reduced(mark, to.dtype(), first, begin(position_ + 1) - first, to.raw() + first * size);
    meeting_->synchronize();  // all slices are summed
    for_others_first([&](size_t other, const RankCall& call) {
      const int64_t start = begin(other) * size;
      take(other, call.to + start, to.raw() + start, begin(other + 1) * size - start);
    });
    leave();
  }

  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    const int64_t block = to.bytes() / ranks();
    enter({.mark = &mark,
           .moves = Collective::all_to_all,
           .from = from.raw(),
           .to = to.raw(),
           .block_bytes = block});
    for_others_first([&](size_t other, const RankCall& call) {
      take(other, call.from + static_cast<int64_t>(position_) * block,
           to.raw() + static_cast<int64_t>(other) * block, block);
    });
    leave();
  }

  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received_rows) override {
    const int64_t row = to.shape().with_dim(0, 1).elements() * dtype_size(to.dtype());
    enter({.mark = &mark,
           .moves = Collective::all_to_all_rows,
           .from = from.raw(),
           .to = to.raw(),
           .sent = sent,
           .received = received_rows,
           .block_bytes = row});
    for_others_first([&](size_t other, const RankCall& call) {
      take(other, call.from + sum_before(call.sent, position_) * row,
           to.raw() + sum_before(received_rows, other) * row, received_rows[other] * row);
    });
    leave();
  }

  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    enter({.mark = &mark, .moves = Collective::broadcast, .to = tensor.raw()});
    const auto other = static_cast<size_t>(root);
    take(other, meeting_->call_of(other).to, tensor.raw(), tensor.bytes());
    leave();
  }

  void exchange(std::span<const MarkedMessage> sends,
                std::span<const MarkedMessage> receives) override {
    // raw() throws for memory of a device. Here no other rank has seen the messages yet.
    for (const MarkedMessage& message : sends) message.tensor.raw();
    for (const MarkedMessage& message : receives) message.tensor.raw();
    received(meeting_->exchange(position_, sends, receives));
  }

  void barrier(const Fingerprint& mark) override {
    enter({.mark = &mark});
    leave();
  }

  void throw_if_broken() override { meeting_->throw_if_failed(); }

 private:
  int ranks() const { return static_cast<int>(meeting_->ranks().size()); }
  void enter(const RankCall& call) { meeting_->enter(position_, call); }
  void leave() { meeting_->leave(position_); }

  /// Copies bytes from the memory of the rank at a position.
  void take(size_t other, const std::byte* from, std::byte* to, int64_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
    if (other != position_) received(bytes);
  }

  /// Reduces elements in the memory of all ranks. Reads each addend once.
  void take_reduced(const Fingerprint& mark, DType dtype, int64_t begin, int64_t elements,
                    std::byte* to) {
    reduce(mark.reduction, dtype, addends_, begin, elements, to);
    received((ranks() - 1) * elements * dtype_size(dtype));
  }

  /// Visits all ranks, this one last. Each rank begins with a different one, so that they do not
  /// all read the same memory at once.
  template <typename Body>
  void for_others_first(Body&& body) const {
    const size_t count = meeting_->ranks().size();
    for (size_t step = 1; step <= count; ++step) {
      const size_t other = (position_ + step) % count;
      body(other, meeting_->call_of(other));
    }
  }

  /// Collects the operands of all ranks, in their order.
  void collect_addends() {
    for (size_t position = 0; position < addends_.size(); ++position) {
      addends_[position] = meeting_->call_of(position).from;
    }
  }

  std::shared_ptr<Meeting> meeting_;
  size_t position_;
  std::vector<const std::byte*> addends_;
};

}  // namespace

std::unique_ptr<Transport> in_process_transport(std::shared_ptr<Meeting> meeting, int position) {
  return std::make_unique<InProcessTransport>(std::move(meeting), static_cast<size_t>(position));
}

}  // namespace tessera
