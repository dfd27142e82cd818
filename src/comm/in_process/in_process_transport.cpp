#include "comm/in_process/in_process_transport.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/in_process/meeting_post.h"
#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

int64_t sum_before(std::span<const int64_t> counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end),
                         int64_t{0});
}

/// The transport among threads. Each collective calls enter(), copies from the memory of other
/// ranks, and calls leave(). Nothing may throw between the two: leave() waits without a timeout.
class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Meeting> meeting, size_t position, std::function<void()> leave)
      : meeting_(std::move(meeting)),
        position_(position),
        leave_group_(std::move(leave)),
        addends_(meeting_->ranks().size()) {}
  ~InProcessTransport() override { leave_group_(); }

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    enter({&mark, Collective::all_gather, &layout, from.raw(), to.raw()});
    const int64_t element_bytes = dtype_size(to.dtype());
    for_each_rank([&](size_t source, const RankCall& call) {
      const auto copy_range = [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
        copy_from(source, call.from + piece_offset * element_bytes,
                  to.raw() + whole_offset * element_bytes, length * element_bytes);
      };
      layout.for_each_range(static_cast<int>(source), copy_range);
    });
    leave();
  }

  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    enter({&mark, Collective::reduce_scatter, &layout, from.raw(), to.raw()});
    const int64_t element_bytes = dtype_size(to.dtype());
    collect_addends();
    const auto reduce_range = [&](int64_t begin, int64_t piece_offset, int64_t length) {
      reduce_addends(mark, to.dtype(), begin, length, to.raw() + piece_offset * element_bytes);
    };
    layout.for_each_range(static_cast<int>(position_), reduce_range);
    leave();
  }

  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    enter({.mark = &mark, .moves = Collective::all_reduce, .from = from.raw(), .to = to.raw()});
    const int64_t element_bytes = dtype_size(to.dtype());
    const auto begin = [&](size_t position) {
      return slice_begin(to.elements(), ranks(), static_cast<int>(position));
    };
    const int64_t own = begin(position_);
    collect_addends();
    reduce_addends(mark, to.dtype(), own, begin(position_ + 1) - own,
                   to.raw() + own * element_bytes);
    meeting_->synchronize();  // waits until all slices are summed
    for_each_rank([&](size_t source, const RankCall& call) {
      const int64_t offset = begin(source) * element_bytes;
      copy_from(source, call.to + offset, to.raw() + offset,
                begin(source + 1) * element_bytes - offset);
    });
    leave();
  }

  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    const int64_t block_bytes = to.bytes() / ranks();
    enter({&mark, Collective::all_to_all, nullptr, from.raw(), to.raw(), block_bytes});
    for_each_rank([&](size_t source, const RankCall& call) {
      copy_from(source, call.from + static_cast<int64_t>(position_) * block_bytes,
                to.raw() + static_cast<int64_t>(source) * block_bytes, block_bytes);
    });
    leave();
  }

  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received_rows) override {
    const int64_t row_bytes = to.shape().with_dim(0, 1).elements() * dtype_size(to.dtype());
    enter({&mark, Collective::all_to_all_rows, nullptr, from.raw(), to.raw(), row_bytes, sent,
           received_rows});
    for_each_rank([&](size_t source, const RankCall& call) {
      copy_from(source, call.from + sum_before(call.sent, position_) * row_bytes,
                to.raw() + sum_before(received_rows, source) * row_bytes,
                received_rows[source] * row_bytes);
    });
    leave();
  }

  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    enter({.mark = &mark, .moves = Collective::broadcast, .to = tensor.raw()});
    const auto source = static_cast<size_t>(root);
    copy_from(source, meeting_->call_of(source).to, tensor.raw(), tensor.bytes());
    leave();
  }

  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    message.tensor.raw();  // throws for memory of a device, before another rank sees the message
    auto post = std::make_unique<MeetingPost>(meeting_, position_, message, sent);
    meeting_->post(*post);
    return post;
  }

  void wait(std::span<TransportPost* const> posts) override {
    meeting_->wait(position_, posts);
    for (const TransportPost* const post : posts) {
      const bool of_other = static_cast<size_t>(post->peer()) != position_;
      if (!post->sent() && of_other) count_received(post->tensor().bytes());
    }
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

  /// Copies bytes from the memory of the rank at position `source`, and counts them.
  void copy_from(size_t source, const std::byte* from, std::byte* to, int64_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
    if (source != position_) count_received(bytes);
  }

  /// Reduces elements of addends_, the memory of all ranks, and counts the other ranks' bytes.
  void reduce_addends(const Fingerprint& mark, DType dtype, int64_t begin, int64_t elements,
                      std::byte* to) {
    reduce(mark.reduction, dtype, addends_, begin, elements, to);
    count_received((ranks() - 1) * elements * dtype_size(dtype));
  }

  /// Calls body(position, call) for all ranks, this rank last. Each rank begins with its next
  /// neighbour, so that they do not all read the same memory at once.
  template <typename Body>
  void for_each_rank(Body&& body) const {
    const size_t count = meeting_->ranks().size();
    for (size_t step = 1; step <= count; ++step) {
      const size_t source = (position_ + step) % count;
      body(source, meeting_->call_of(source));
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
  std::function<void()> leave_group_;
  std::vector<const std::byte*> addends_;  // of the call that is being made, by position
};

}  // namespace

std::unique_ptr<Transport> in_process_transport(std::shared_ptr<Meeting> meeting, int position,
                                                std::function<void()> leave) {
  return std::make_unique<InProcessTransport>(std::move(meeting), static_cast<size_t>(position),
                                              std::move(leave));
}

}  // namespace tessera
