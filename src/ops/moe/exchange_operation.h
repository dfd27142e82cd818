#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/moe/exchange.h"

namespace tessera {

/// On which side of an exchange an operand is.
enum class Side : uint8_t { sent, received };

/// The rule of the exchange's operations: rows that are sent vary over all axes, and those that are
/// received are split by experts over the axis of the exchange and vary over the others.
HandRule exchange_rule(const ExchangeOptions& options, std::vector<Side> inputs,
                       std::vector<Side> outputs);

/// What all operations of an exchange over several ranks share.
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
  /// The cost of sending an array of which each rank gets an equal part.
  Cost cost_of_sending(double bytes, std::span<const Spec> inputs,
                       std::span<const Spec> outputs) const;

 private:
  ExchangeOptions options_;
  int ranks_;
};

/// The exchange among one rank of rows or their offsets: the same memory under the type of the
/// other side.
Value exchange_in_place(Builder& builder, Value rows, const ExchangeOptions& options, Side from);

}  // namespace tessera
