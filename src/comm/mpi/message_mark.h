#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/fingerprint.h"

namespace tessera {

/// The fingerprint of a message, as one of its ranks gives it to the other: of a fixed size, and
/// made without formatting. The ranks compare the numbers. The rest is for the error if they
/// differ.
struct MessageMark {
  uint64_t number = 0;  ///< Fingerprint::hash()
  int64_t sequence = 0;
  std::array<int64_t, Shape::kMaximumRank> dims{};
  int32_t dim_count = 0;
  int32_t from = 0;
  int32_t to = 0;
  DType dtype = DType::u8;
  std::array<char, 187> name{};  ///< its beginning, padded with zeros

  static MessageMark of(const Fingerprint& mark) {
    MessageMark result{.number = mark.hash(),
                       .sequence = mark.sequence,
                       .dim_count = mark.shape.rank(),
                       .from = mark.from,
                       .to = mark.to,
                       .dtype = mark.dtype};
    std::ranges::copy(mark.shape.dims(), result.dims.begin());
    std::ranges::copy(mark.name.substr(0, result.name.size()), result.name.begin());
    return result;
  }

  /// Returns the message in words, as Fingerprint::text() does.
  std::string text() const {
    const auto end = std::ranges::find(name, '\0');
    return Fingerprint{.name = std::string_view(name.begin(), end),
                       .collective = Collective::message,
                       .sequence = sequence,
                       .dtype = dtype,
                       .shape = Shape(std::span(dims).first(static_cast<size_t>(dim_count))),
                       .from = from,
                       .to = to}
        .text();
  }
};
static_assert(sizeof(MessageMark) == 256);

}  // namespace tessera
