#include "hardware/collective_rate.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/quantile.h"

namespace tessera {
namespace {

constexpr double kLeastBatch = 1e-3;  // seconds that are timed at once
constexpr int64_t kLeastBatches = 3, kMostBatches = 1'000'000;

/// A collective of one size, with its operands.
class MeasuredCall {
 public:
  MeasuredCall(Communicator& group, Collective collective, DType dtype, int64_t bytes)
      : group_(group), collective_(collective), layout_(even_pieces(group.size(), group.size())) {
    const int64_t ranks = group.size();
    const int64_t each =
        std::max<int64_t>(1, (bytes + ranks * dtype_size(dtype) - 1) / (ranks * dtype_size(dtype)));
    layout_ = even_pieces(ranks * each, group.size());
    from_ = Tensor({collective == Collective::all_gather ? each : ranks * each}, dtype);
    to_ = Tensor({collective == Collective::reduce_scatter ? each : ranks * each}, dtype);
  }

  int64_t bytes() const { return std::max(from_.bytes(), to_.bytes()); }

  void operator()() {
    switch (collective_) {
      case Collective::all_gather:
        return group_.all_gather("bench", layout_, from_, to_);
      case Collective::reduce_scatter:
        return group_.reduce_scatter("bench", layout_, from_, to_);
      case Collective::all_reduce:
        return group_.all_reduce("bench", from_, to_);
      case Collective::all_to_all:
        return group_.all_to_all("bench", from_, to_);
      case Collective::broadcast:
        return group_.broadcast("bench", 0, to_);
      case Collective::message: {
        const int ranks = group_.size();
        const Message send{(group_.position() + 1) % ranks, from_};
        const Message receive{(group_.position() + ranks - 1) % ranks, to_};
        return group_.exchange("bench", std::span(&send, 1), std::span(&receive, 1));
      }
      default:
        throw InternalError("a collective that is not measured");
    }
  }

 private:
  Communicator& group_;
  Collective collective_;
  PieceLayout layout_;
  Tensor from_, to_;
};

/// Returns the largest of the ranks' numbers.
double largest(Communicator& group, double own) {
  const Tensor number({1}, DType::f64);
  number.data<double>()[0] = own;
  group.all_reduce("largest", number, number, Reduction::maximum);
  return number.data<double>()[0];
}

/// Returns the seconds per call of the slowest rank, measured over `calls` calls. Throws Error on
/// all ranks if one is interrupted.
double time_calls(Communicator& group, int64_t calls, MeasuredCall& call) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  group.barrier("begin");
  const Stopwatch watch;
  for (int64_t i = 0; i < calls; ++i) call();
  const double slowest = largest(group, InterruptGuard::requested() ? kNever : watch.seconds());
  if (slowest == kNever) throw Error("interrupted");
  return slowest / static_cast<double>(calls);
}

CollectiveRate measure(Communicator& group, const CollectiveRanks& ranks, Collective collective,
                       int64_t bytes, const CollectiveSweep& sweep) {
  MeasuredCall call(group, collective, sweep.dtype, bytes);
  call();  // makes what calls make once
  // All ranks get the same times, so they choose the same number of calls.
  const double once = std::max(time_calls(group, 1, call), 1e-9);
  const double least = std::max(kLeastBatch, sweep.seconds / kMostBatches);
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(least / once));
  const double batch = once * static_cast<double>(calls);
  const auto batches =
      std::clamp(static_cast<int64_t>(sweep.seconds / batch), kLeastBatches, kMostBatches);
  std::vector<double> seconds;
  for (int64_t i = 0; i < batches; ++i) seconds.push_back(time_calls(group, calls, call));
  return {collective,
          sweep.dtype,
          ranks,
          call.bytes(),
          *std::ranges::min_element(seconds),
          quantile(seconds, 0.5)};
}

}  // namespace

std::string CollectiveRanks::text() const {
  if (carrier == Carrier::threads) return fmt::format("{} threads of a process", ranks);
  return fmt::format("{} processes of {} machine{}", ranks, machines, machines == 1 ? "" : "s");
}

double CollectiveRate::bus_bandwidth() const {
  const auto others = static_cast<double>(ranks.ranks - 1) / ranks.ranks;
  double sent = 1;  // of the bytes
  switch (collective) {
    case Collective::all_reduce:
      sent = 2 * others;
      break;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      sent = others;
      break;
    default:
      break;
  }
  return sent * static_cast<double>(bytes) / best;
}

std::vector<CollectiveRate> measure_collectives(Communicator& group, const CollectiveRanks& ranks,
                                                const CollectiveSweep& sweep) {
  std::vector<CollectiveRate> rates;
  for (const Collective collective : sweep.collectives) {
    for (const int64_t bytes : sweep.bytes) {
      rates.push_back(measure(group, ranks, collective, bytes, sweep));
    }
  }
  return rates;
}

}  // namespace tessera
