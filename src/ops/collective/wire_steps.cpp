#include "ops/collective/wire_steps.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "comm/call_list.h"
#include "comm/communicator.h"
#include "ops/collective/wire_pieces.h"
#include "ops/support.h"

namespace tessera {
namespace {

constexpr int64_t kSlotAlignment = 64;  // bytes

/// Returns `bytes` bytes of the workspace as a tensor of u8.
Tensor buffer_of(const Execution& execution, int64_t begin, int64_t bytes) {
  TESSERA_CHECK(begin + bytes <= std::ssize(execution.workspace),
                "bytes {} to {} of a workspace of {}", begin, begin + bytes,
                execution.workspace.size());
  return Tensor::wrap(execution.workspace.data() + begin, {bytes}, DType::u8,
                      execution.inputs[0].accelerator());
}

Tensor piece_of(const FlatStep& step, const Tensor& whole, size_t position) {
  const int at = static_cast<int>(position);
  const int64_t begin = step.pieces.elements(at) == 0 ? 0 : step.pieces.piece_begin(at);
  return whole.view(begin, {step.pieces.elements(at)});
}

}  // namespace

WireSum::WireSum(std::vector<FlatStep> steps, const Wire& wire, bool sends_on)
    : steps_(std::move(steps)), wire_(wire), sends_on_(sends_on) {
  for (const FlatStep& step : steps_) {
    TESSERA_CHECK(step.kind != FlatStepKind::all_reduce, "an all-reduce of rounded addends");
    slots_.push_back(slots_of(step));
  }
}

WireSum::Slots WireSum::slots_of(const FlatStep& step) const {
  std::vector<int64_t> bytes, begins;
  std::vector<std::vector<ElementRun>> runs;
  int64_t begin = 0;
  for (int position = 0; position < step.pieces.ranks(); ++position) {
    bytes.push_back(wire_bytes(wire_, step.pieces.elements(position)));
    begins.push_back(begin);
    runs.emplace_back();
    if (bytes.back() > 0) runs.back().push_back({begin, bytes.back()});
    begin += bytes.back();
  }
  begins.push_back(begin);
  const int64_t own = bytes[static_cast<size_t>(step.position)];
  std::vector<int64_t> received(bytes.size(), own);
  return {std::move(bytes), std::move(begins), std::move(received),
          PieceLayout(1, begin, 1, std::move(runs))};
}

std::vector<WireBytes> WireSum::wire() const {
  std::vector<WireBytes> wire;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const FlatStep& step = steps_[i];
    const int ranks = step.pieces.ranks();
    const bool is_rounded = step.kind == FlatStepKind::reduce_scatter || gathers_rounded();
    double bytes = step.average_length * static_cast<double>(dtype_size(DType::f32));
    if (is_rounded && wire_.is_quantised()) {
      bytes = static_cast<double>(slots_[i].begins.back());
    } else if (is_rounded) {
      bytes /= 2;
    }
    add_wire(wire, {step.axes, bytes * (ranks - 1) / ranks});
  }
  return wire;
}

int64_t WireSum::workspace_bytes(const Target& target) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto own = static_cast<size_t>(steps_[i].position);
    int64_t needed = slots_[i].begins.back();
    if (steps_[i].kind == FlatStepKind::reduce_scatter) {
      // What this rank gets follows: a message from each rank.
      needed = round_up(needed, kSlotAlignment) +
               steps_[i].pieces.ranks() * round_up(slots_[i].bytes[own], kSlotAlignment);
    } else if (gathers_rounded()) {
      needed += steps_workspace({&steps_[i], 1}, DType::u8, target);
    } else {
      needed = steps_workspace({&steps_[i], 1}, DType::f32, target);
    }
    bytes = std::max(bytes, needed);
  }
  return bytes;
}

int64_t WireSum::feedback_elements() const {
  return steps_.empty() ? 0 : steps_.front().whole.length;
}

void WireSum::run(const Execution& execution, std::span<Communicator* const> groups,
                  const Tensor& memory, const std::optional<ErrorFeedback>& feedback) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const FlatStep& step = steps_[i];
    if (step.whole.length == 0) continue;
    const Tensor whole = memory.view(step.whole.begin, {step.whole.length});
    if (step.kind == FlatStepKind::reduce_scatter) {
      scatter(execution, step, *groups[i], whole, i == 0 ? feedback : std::nullopt);
    } else if (gathers_rounded()) {
      gather(execution, step, *groups[i], whole);
    } else {
      run_steps(execution, {&step, 1}, groups.subspan(i, 1), memory);
    }
  }
}

void WireSum::scatter(const Execution& execution, const FlatStep& step, Communicator& group,
                      const Tensor& whole, const std::optional<ErrorFeedback>& feedback) const {
  const Slots& slots = slots_[static_cast<size_t>(&step - steps_.data())];
  const auto own = static_cast<size_t>(step.position);
  const int64_t own_bytes = slots.bytes[own];
  const bool on_device = execution.stream != nullptr;
  // What devices receive begins at cache lines. What is sent follows without gaps, as the calls of
  // the processor need it: pieces of integers at 16 bytes, and those of bf16 at cache lines.
  const int64_t stride = on_device ? round_up(own_bytes, kSlotAlignment) : own_bytes;
  const Tensor sent = buffer_of(execution, 0, slots.begins.back());
  const Tensor all_received = buffer_of(execution, round_up(slots.begins.back(), kSlotAlignment),
                                        static_cast<int64_t>(slots.bytes.size()) * stride);
  const auto slot = [&](size_t position) {
    return sent.view(slots.begins[position], {slots.bytes[position]});
  };
  const auto received = [&](size_t position) {
    return all_received.view(static_cast<int64_t>(position) * stride, {own_bytes});
  };
  for (size_t position = 0; position < slots.bytes.size(); ++position) {
    const Tensor part = piece_of(step, whole, position);
    if (part.elements() == 0) continue;
    std::optional<ErrorFeedback> part_feedback = feedback;
    if (feedback) part_feedback->error = piece_of(step, feedback->error, position);
    to_wire(execution, wire_, part, slot(position), part_feedback);
  }
  if (on_device) {
    std::vector<Message> sends, receives;
    for_messages(step, slots, [&](int peer, int64_t sent_bytes, int64_t received_bytes) {
      const auto position = static_cast<size_t>(peer);
      if (sent_bytes > 0) sends.push_back({peer, slot(position)});
      if (received_bytes > 0) receives.push_back({peer, received(position)});
    });
    if (own_bytes > 0) copy(execution, slot(own), received(own));
    group.exchange(execution.name, sends, receives, execution.call());
  } else {
    group.all_to_all_rows(execution.name, sent, slots.bytes, all_received, slots.received);
  }
  const Tensor sum = piece_of(step, whole, own);
  if (sum.elements() == 0) return;
  from_wire(execution, wire_, received(0), sum);
  for (size_t position = 1; position < slots.bytes.size(); ++position) {
    add_from_wire(execution, wire_, received(position), sum);
  }
}

template <typename Visit>
void WireSum::for_messages(const FlatStep& step, const Slots& slots, Visit&& visit) const {
  for (int peer = 0; peer < step.pieces.ranks(); ++peer) {
    const auto position = static_cast<size_t>(peer);
    if (peer != step.position) visit(peer, slots.bytes[position], slots.received[position]);
  }
}

void WireSum::list_calls(const CallListing& listing) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const FlatStep& step = steps_[i];
    const Slots& slots = slots_[i];
    CallList& group = *listing.groups[i];
    if (step.whole.length == 0) continue;
    if (step.kind == FlatStepKind::reduce_scatter && listing.target.device == Device::cpu) {
      group.all_to_all_rows(listing.name, DType::u8, {1});
    } else if (step.kind == FlatStepKind::reduce_scatter) {
      for_messages(step, slots, [&](int peer, int64_t sent_bytes, int64_t) {
        if (sent_bytes > 0) group.send(listing.name, peer, DType::u8, {sent_bytes});
      });
      for_messages(step, slots, [&](int peer, int64_t, int64_t received_bytes) {
        if (received_bytes > 0) group.receive(listing.name, peer, DType::u8, {received_bytes});
      });
    } else if (gathers_rounded()) {
      group.all_gather(listing.name, slots.layout, DType::u8, {slots.begins.back()});
    } else {
      list_steps(listing, {&step, 1}, DType::f32, listing.groups.subspan(i, 1));
    }
  }
}

void WireSum::gather(const Execution& execution, const FlatStep& step, Communicator& group,
                     const Tensor& whole) const {
  const Slots& slots = slots_[static_cast<size_t>(&step - steps_.data())];
  const Tensor all = buffer_of(execution, 0, slots.begins.back());
  const auto slot = [&](size_t position) {
    return all.view(slots.begins[position], {slots.bytes[position]});
  };
  const auto own = static_cast<size_t>(step.position);
  if (slots.bytes[own] > 0) to_wire(execution, wire_, piece_of(step, whole, own), slot(own));
  // The rest of the workspace is for the call.
  const DeviceCall call{
      .stream = execution.stream,
      .workspace = execution.workspace.subspan(static_cast<size_t>(slots.begins.back()))};
  group.all_gather(execution.name, slots.layout, slot(own), all, call);
  for (size_t position = 0; position < slots.bytes.size(); ++position) {
    if (slots.bytes[position] == 0) continue;
    from_wire(execution, wire_, slot(position), piece_of(step, whole, position));
  }
}

}  // namespace tessera
