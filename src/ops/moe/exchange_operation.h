#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/moe/exchange.h"

namespace tessera {

/// The side of an exchange that an operand is on.
enum class Side : uint8_t { sent, received };

/// Returns the rule of the exchange's operations: rows that are sent vary over all axes, and rows
/// that are received are split by experts over the axis of the exchange and vary over the others.
HandRule exchange_rule(const ExchangeOptions& options, std::vector<Side> inputs,
                       std::vector<Side> outputs);

/// The common part of all operations of an exchange over several ranks.
class ExchangeOperation : public Operation {
 public:
  ExchangeOperation(ExchangeOptions options, int ranks)
      : options_(std::move(options)), ranks_(ranks) {}
  Lane lane() const override { return Lane::network; }
  std::vector<std::vector<Axis>> meets() const override { return {{options_.axis}}; }
  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override;

 protected:
  const ExchangeOptions& options() const { return options_; }
  int ranks() const { return ranks_; }
  int64_t experts() const { return options_.local_experts * ranks_; }
  /// Returns the cost of sending an array of which each rank gets an equal part.
  Cost cost_of_sending(double bytes, std::span<const Spec> inputs,
                       std::span<const Spec> outputs) const;

 private:
  ExchangeOptions options_;
  int ranks_;
};

/// Returns the result of an exchange over a single rank, for rows or their offsets: the same memory
/// with the type of the other side.
Value exchange_in_place(Builder& builder, Value rows, const ExchangeOptions& options, Side from);

}  // namespace tessera
