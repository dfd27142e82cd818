#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/in_process/meeting.h"
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

  void make(const TransportCall& call) override {
    for (const Tensor* const operand : {&call.from, &call.to}) operand->raw();  // throws on devices
    meeting_->enter(position_, call);
    move(call);
    meeting_->leave(position_);
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

  void throw_if_broken() override { meeting_->throw_if_failed(); }

 private:
  int ranks() const { return static_cast<int>(meeting_->ranks().size()); }

  /// Copies or reduces this rank's result.
  void move(const TransportCall& call) {
    switch (call.moves) {
      case Collective::all_gather:
        return gather(call);
      case Collective::reduce_scatter:
        return reduce_piece(call);
      case Collective::all_reduce:
        return reduce_slice_and_gather(call);
      case Collective::all_to_all:
      case Collective::all_to_all_rows:
        return take_rows(call);
      case Collective::broadcast: {
        const auto root = static_cast<size_t>(call.root);
        if (root == position_) return;
        return copy_from(root, meeting_->call_of(root).from.raw(), call.to.raw(), call.to.bytes());
      }
      case Collective::barrier:
      case Collective::message:  // it is posted
        return;
    }
  }

  void gather(const TransportCall& own) {
    const int64_t element_bytes = dtype_size(own.to.dtype());
    for_each_rank([&](size_t source, const TransportCall& call) {
      const auto copy_range = [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
        copy_from(source, call.from.raw() + piece_offset * element_bytes,
                  own.to.raw() + whole_offset * element_bytes, length * element_bytes);
      };
      own.layout->for_each_range(static_cast<int>(source), copy_range);
    });
  }

  void reduce_piece(const TransportCall& call) {
    collect_addends();
    const auto reduce_range = [&](int64_t begin, int64_t piece_offset, int64_t length) {
      reduce_addends(call, begin, length, piece_offset);
    };
    call.layout->for_each_range(static_cast<int>(position_), reduce_range);
  }

  void reduce_slice_and_gather(const TransportCall& own) {
    const int64_t element_bytes = dtype_size(own.to.dtype());
    const auto begin = [&](size_t position) {
      return slice_begin(own.to.elements(), ranks(), static_cast<int>(position));
    };
    collect_addends();
    reduce_addends(own, begin(position_), begin(position_ + 1) - begin(position_),
                   begin(position_));
    meeting_->synchronize();  // waits until all slices are summed
    for_each_rank([&](size_t source, const TransportCall& call) {
      const int64_t offset = begin(source) * element_bytes;
      copy_from(source, call.to.raw() + offset, own.to.raw() + offset,
                begin(source + 1) * element_bytes - offset);
    });
  }

  void take_rows(const TransportCall& own) {
    const int64_t row_bytes = own.row_bytes();
    for_each_rank([&](size_t source, const TransportCall& call) {
      copy_from(source, call.from.raw() + sum_before(call.sent, position_) * row_bytes,
                own.to.raw() + sum_before(own.received, source) * row_bytes,
                own.received[source] * row_bytes);
    });
  }

  /// Copies bytes from the memory of the rank at position `source`, and counts them.
  void copy_from(size_t source, const std::byte* from, std::byte* to, int64_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
    if (source != position_) count_received(bytes);
  }

  /// Reduces elements of addends_, the memory of all ranks, from `begin` on, to the element
  /// `offset` of the result. Counts the other ranks' bytes.
  void reduce_addends(const TransportCall& call, int64_t begin, int64_t elements, int64_t offset) {
    const int64_t element_bytes = dtype_size(call.to.dtype());
    reduce(call.mark.reduction, call.to.dtype(), addends_, begin, elements,
           call.to.raw() + offset * element_bytes);
    count_received((ranks() - 1) * elements * element_bytes);
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
      addends_[position] = meeting_->call_of(position).from.raw();
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
