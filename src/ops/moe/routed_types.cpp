#include "ops/moe/routed_types.h"

#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

bool in_token_order(Routed meaning) {
  return meaning == Routed::tokens || meaning == Routed::choices;
}

[[noreturn]] void refuse(size_t operand, std::string_view expected) {
  throw DistributionError(fmt::format("operand {}: expected {}", operand, expected));
}

/// The types of the first operands that are split along dim 0.
struct Splits {
  const TypeOnAxis* tokens = nullptr;  // of the operands in token order; null if none is split
  const TypeOnAxis* rows = nullptr;    // of the operands in row order
};

Splits find_splits(const std::vector<Routed>& inputs, std::span<const TypeOnAxis> types) {
  Splits splits;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!splits_rows(types[k])) continue;
    if (in_token_order(inputs[k]) && splits.tokens == nullptr) splits.tokens = &types[k];
    if (inputs[k] == Routed::rows && splits.rows == nullptr) splits.rows = &types[k];
  }
  return splits;
}

// Each of the next three functions throws DistributionError unless operand k fits the splits.

void require_token_order(size_t k, Routed meaning, const TypeOnAxis& type, const Splits& splits) {
  if (splits.tokens != nullptr) {
    if (!same_pieces(type, *splits.tokens)) {
      refuse(k, fmt::format("the same tokens, {}", splits.tokens->text()));
    }
    return;
  }
  const bool is_invariant = meaning == Routed::choices && type.placement == Placement::invariant;
  if (type.placement != Placement::replicated && !is_invariant) {
    refuse(k, "replicated, because the rows are split by experts");
  }
}

void require_rows(size_t k, const TypeOnAxis& type, const Splits& splits) {
  const bool exchanged = splits.tokens != nullptr;
  const bool fits =
      exchanged ? type.placement == Placement::varying && type.pieces.kind == PieceKind::exchange
                : type == sharded(0);
  if (!fits) {
    refuse(k, exchanged ? "rows of an exchange, because the tokens are split"
                        : "rows that are split by experts, because the tokens are not split");
  }
  if (!same_pieces(type, *splits.rows)) {
    refuse(k, fmt::format("the same rows, {}", splits.rows->text()));
  }
}

void require_block_offsets(size_t k, const TypeOnAxis& type, const Splits& splits) {
  const TypeOnAxis expected = splits.tokens != nullptr ? *splits.tokens : sharded(1);
  if (!same_pieces(type, expected))
    refuse(k, fmt::format("the block offsets of these rows, {}", expected.text()));
}

TypeOnAxis output_type(Routed meaning, const Splits& splits) {
  if (meaning == Routed::rows) return *splits.rows;
  if (splits.tokens != nullptr) return *splits.tokens;
  return meaning == Routed::tokens ? partial() : replicated();
}

}  // namespace

HandRule routed_rule(std::vector<Routed> inputs, std::vector<Routed> outputs) {
  return [inputs = std::move(inputs), outputs = std::move(outputs)](
             Axis, std::span<const TypeOnAxis> types) -> std::optional<std::vector<TypeOnAxis>> {
    const Splits splits = find_splits(inputs, types);
    if (splits.tokens == nullptr && splits.rows == nullptr) return std::nullopt;
    if (splits.rows == nullptr) {
      throw DistributionError(
          "the tokens are split and the rows are not; expected rows of an "
          "exchange of these tokens");
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (in_token_order(inputs[k])) {
        require_token_order(k, inputs[k], types[k], splits);
      } else if (inputs[k] == Routed::rows) {
        require_rows(k, types[k], splits);
      } else {
        require_block_offsets(k, types[k], splits);
      }
    }
    std::vector<TypeOnAxis> result;
    for (const Routed output : outputs) result.push_back(output_type(output, splits));
    return result;
  };
}

TypeOnAxis rows_of_exchange(int identity) {
  return varying(0, {.kind = PieceKind::exchange, .identity = identity}, 1);
}

}  // namespace tessera
