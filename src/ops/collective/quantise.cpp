#include "ops/collective/quantise.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/words.h"
#include "ops/collective/quantise_kernels.h"
#include "ops/math/vector_math.h"
#include "ops/support.h"

// The plain kernel and the fast one give the same bits. For that, no product here may be fused with
// a sum: CMakeLists.txt compiles this file with -ffp-contract=off.

namespace tessera {
namespace {

/// The plain kernel: the definition of a block's integers and scale, and of restored elements.
struct PlainKernel {
  /// Quantises the elements of a block.
  ///   m = max |x[i]|,  s = L / m,  q[i] = round(x[i] s)
  template <int bits, typename T>
  static void quantise(const T* x, int64_t count, std::byte* integers, float* scale) {
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
      const auto magnitude = std::abs(static_cast<float>(x[i]));
      finite = finite && std::isfinite(magnitude);
      largest = std::max(largest, magnitude);
    }
    constexpr auto kLimit = static_cast<float>(largest_integer(bits));
    float factor = 0;
    *scale = 1;
    if (!finite) {
      *scale = std::numeric_limits<float>::quiet_NaN();
    } else if (largest >= kLimit * kLeastNormal) {
      factor = kLimit / largest;
      *scale = 1 / factor;
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(x[i]);
      const bool is_zero = !finite || std::abs(value) < kLeastNormal;
      put<bits>(integers, i, is_zero ? 0 : static_cast<int>(std::nearbyint(value * factor)));
    }
  }

  /// Quantises the elements of a block with error feedback.
  ///   y[i] = x[i] + e[i],  e[i] = beta e[i] + (1 - beta) (y[i] - q[i] (1 / s))
  template <int bits>
  static void quantise_with_feedback(const float* x, int64_t count, const FeedbackStep& step,
                                     float* e, std::byte* integers, float* scale) {
    std::array<float, QuantisedFormat::kMostBlock> y;
    for (int64_t i = 0; i < count; ++i) y[static_cast<size_t>(i)] = x[i] + e[i];
    quantise<bits>(y.data(), count, integers, scale);
    if (std::isnan(*scale)) return;
    restore<bits>(integers, count, *scale, [&](int64_t i, float restored) {
      e[i] = step.updated(e[i], y[static_cast<size_t>(i)], restored);
    });
  }

  template <int bits, typename T>
  static void dequantise(const std::byte* integers, int64_t count, float scale, T* x) {
    restore<bits>(integers, count, scale,
                  [=](int64_t i, float restored) { x[i] = static_cast<T>(restored); });
  }

  /// Calls body(i, restored) with q[i] (1 / s) for each element of a block.
  template <int bits, typename Body>
  static void restore(const std::byte* integers, int64_t count, float scale, Body&& body) {
    for (int64_t i = 0; i < count; ++i) {
      body(i, static_cast<float>(integer<bits>(integers, i)) * scale);
    }
  }

 private:
  /// Writes integer number `i` of a block, after those before it.
  template <int bits>
  static void put(std::byte* integers, int64_t i, int integer) {
    const auto byte = static_cast<std::byte>(integer);
    if constexpr (bits == 8) {
      integers[i] = byte;
    } else if (i % 2 == 0) {
      integers[i / 2] = byte << 4;
    } else {
      integers[i / 2] |= byte & std::byte{15};
    }
  }
  template <int bits>
  static int integer(const std::byte* integers, int64_t i) {
    if constexpr (bits == 8) return static_cast<int8_t>(integers[i]);
    const int nibble = static_cast<int>(integers[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 15;
    return nibble < 8 ? nibble : nibble - 16;
  }
};

/// The fast kernel: loops that the compiler vectorises.
struct FastKernel {
  template <int bits, typename T>
  static void quantise(const T* x, int64_t count, std::byte* integers, float* scale) {
    const BlockScale block = block_scale(largest_magnitude(x, count), largest_integer(bits));
    *scale = block.scale;
    round_all<bits>(integers, count, block, [=](int64_t i, auto round) {
      return std::bit_cast<uint32_t>(round(static_cast<float>(x[i])));
    });
  }

  template <int bits>
  static void quantise_with_feedback(const float* x, int64_t count, const FeedbackStep& step,
                                     float* e, std::byte* integers, float* scale) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(x[i] + e[i]));
    const BlockScale block = block_scale(largest, largest_integer(bits));
    *scale = block.scale;
    round_all<bits>(integers, count, block, [=](int64_t i, auto round) {
      const float y = x[i] + e[i];
      const float rounded = round(y);
      e[i] = step.updated(e[i], y, (rounded - kExpShift) * block.scale);
      return std::bit_cast<uint32_t>(rounded);
    });
  }

  template <int bits, typename T>
  static void dequantise(const std::byte* integers, int64_t count, float scale, T* x) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (std::isnan(scale)) return static_cast<void>(std::fill_n(x, count, T(scale)));
      if constexpr (bits == 4) return restore_pairs(integers, count, scale, x);
      restore<bits>(integers, count, scale,
                    [=](int64_t i, float restored) { x[i] = T::of_number(restored); });
    } else {
      restore<bits>(integers, count, scale, [=](int64_t i, float restored) { x[i] = restored; });
    }
  }

  template <int bits, typename Body>
  static void restore(const std::byte* integers, int64_t count, float scale, Body&& body) {
    if constexpr (bits == 8) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) {
        body(i, static_cast<float>(static_cast<int8_t>(integers[i])) * scale);
      }
    } else {
      // Interleaving bytes takes less than interleaving numbers.
      constexpr int64_t kAtOnce = 256;
      alignas(64) std::array<std::byte, kAtOnce> bytes;
      for (int64_t begin = 0; begin < count; begin += kAtOnce) {
        const int64_t here = std::min(kAtOnce, count - begin);
        to_bytes(integers + begin / 2, ceil_div(here, 2), bytes.data());
        restore<8>(bytes.data(), here, scale,
                   [&](int64_t i, float restored) { body(begin + i, restored); });
      }
    }
  }

 private:
  /// The factor up to which a number below 2^-126 rounds to zero anyway.
  static constexpr float kDenormalsMatter = 0x1p125f;

  /// Restores integers of four bits. The two numbers of a byte are written as one word, the first
  /// in its low half.
  static void restore_pairs(const std::byte* integers, int64_t count, float scale, BFloat16* x) {
    const auto bits_of = [=](int32_t integer) -> uint32_t {
      return BFloat16::of_number(static_cast<float>(integer) * scale).bits;
    };
#pragma GCC ivdep
    for (int64_t i = 0; i < count / 2; ++i) {
      const auto pair = static_cast<int8_t>(integers[i]);
      const uint32_t word = bits_of(pair >> 4) | bits_of(pair << 28 >> 28) << 16;
      std::memcpy(static_cast<void*>(x + 2 * i), &word, sizeof word);
    }
    if (count % 2 != 0) {
      x[count - 1].bits =
          static_cast<uint16_t>(bits_of(static_cast<int8_t>(integers[count / 2]) >> 4));
    }
  }

  /// Writes the two integers of each byte as bytes of their own.
  static void to_bytes(const std::byte* pairs, int64_t count, std::byte* integers) {
    for (int64_t i = 0; i < count; ++i) {
      const auto upper = static_cast<int8_t>(static_cast<int8_t>(pairs[i]) >> 4);
      // Shifts bring the lower half to the top of a byte, and back with its sign.
      const auto lower =
          static_cast<int8_t>(static_cast<int8_t>(static_cast<uint8_t>(pairs[i]) << 4) >> 4);
      integers[2 * i] = static_cast<std::byte>(upper);
      integers[2 * i + 1] = static_cast<std::byte>(lower);
    }
  }

  /// Returns magnitude_bits() of the largest magnitude.
  static uint32_t largest_magnitude(const float* x, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(x[i]));
    return largest;
  }
  static uint32_t largest_magnitude(const BFloat16* x, int64_t count) {
    uint16_t largest = 0;  // twice as many fit into a vector
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, static_cast<uint16_t>(x[i].bits & 0x7fffu));
    }
    return uint32_t{largest} << 16;
  }

  /// Writes the integers of a block: the low bits of word(i, round), where round(value) returns
  /// kExpShift + q. Such a sum has q in its low bits.
  template <int bits, typename Word>
  static void round_all(std::byte* integers, int64_t count, const BlockScale& block, Word word) {
    const float factor = block.factor;
    if (!block.finite) {
      std::fill_n(integers, ceil_div(count * bits, 8), std::byte{0});
    } else if (factor > kDenormalsMatter) {
      put_all<bits>(integers, count, [=](int64_t i) {
        return word(i, [=](float value) { return without_denormals(value) * factor + kExpShift; });
      });
    } else {
      put_all<bits>(integers, count, [=](int64_t i) {
        return word(i, [=](float value) { return value * factor + kExpShift; });
      });
    }
  }
  template <int bits, typename Word>
  static void put_all(std::byte* integers, int64_t count, Word word) {
    if constexpr (bits == 8) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) integers[i] = static_cast<std::byte>(word(i));
      return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < count / 2; ++i) {
      const uint32_t first = word(2 * i), second = word(2 * i + 1);
      integers[i] = static_cast<std::byte>((first << 4) | (second & 15u));
    }
    if (count % 2 != 0) integers[count / 2] = static_cast<std::byte>(word(count - 1) << 4);
  }
};

/// Calls body(block, bits) for every block of a piece, on several threads.
template <typename Body>
void for_each_block(const Execution& execution, const QuantisedPiece& piece, Body&& body) {
  with_bits(piece.format.type, [&](auto bits) {
    parallel_each(execution.threads(), piece.blocks(), row_grain(piece.format.block),
                  [&](int64_t block) { body(block, bits); });
  });
}

template <typename Kernel, typename T>
void quantise_on_processor(const Execution& execution, const QuantisedPiece& piece, const T* values,
                           const FeedbackStep& feedback) {
  for_each_block(execution, piece, [&](int64_t block, auto bits) {
    const int64_t begin = block * piece.format.block, count = piece.elements_of_block(block);
    std::byte* const integers = piece.block_integers(block);
    float* const scale = piece.scales + block;
    if constexpr (std::is_same_v<T, float>) {
      if (feedback.error != nullptr) {
        return Kernel::template quantise_with_feedback<bits>(
            values + begin, count, feedback, feedback.error + begin, integers, scale);
      }
    }
    Kernel::template quantise<bits>(values + begin, count, integers, scale);
  });
  piece.clear_padding();
}

template <typename Kernel, typename T>
void dequantise_on_processor(const Execution& execution, const QuantisedPiece& piece, T* values,
                             bool adds) {
  for_each_block(execution, piece, [&](int64_t block, auto bits) {
    T* const to = values + block * piece.format.block;
    const int64_t count = piece.elements_of_block(block);
    const std::byte* const integers = piece.block_integers(block);
    const float scale = piece.scales[block];
    if constexpr (std::is_same_v<T, float>) {
      if (adds) {
        return Kernel::template restore<bits>(
            integers, count, scale, [=](int64_t i, float restored) { to[i] += restored; });
      }
    }
    Kernel::template dequantise<bits>(integers, count, scale, to);
  });
}

/// Calls body(Kernel{}) with the kernel that the execution's target asks for.
template <typename Body>
void with_kernel(const Execution& execution, Body&& body) {
  if (use_plain(execution.runtime.target(), DType::f32)) return body(PlainKernel{});
  body(FastKernel{});
}

void check_format(const QuantisedFormat& format) {
  const bool even = format.type == QuantisedType::int8 || format.block % 2 == 0;
  TESSERA_CHECK(format.block >= 1 && format.block <= QuantisedFormat::kMostBlock && even,
                "blocks of {} elements in {}; expected 1 to {}, and in int4 an even number",
                format.block, word(format.type), QuantisedFormat::kMostBlock);
}

/// Returns a piece of as many elements as `values` in the memory of `piece`, after checks of both.
QuantisedPiece piece_of(const QuantisedFormat& format, const Tensor& values, const Tensor& piece) {
  const int64_t bytes = quantised_bytes(format, values.elements());
  TESSERA_CHECK(piece.dtype() == DType::u8 && piece.elements() == bytes,
                "a piece of {} elements is {} {}; expected u8 [{}]", values.elements(),
                dtype_name(piece.dtype()), piece.shape().text(), bytes);
  auto* const integers = static_cast<std::byte*>(piece.address());
  TESSERA_CHECK(reinterpret_cast<uintptr_t>(integers) % 16 == 0,
                "a piece begins at an address that is no multiple of 16");
  QuantisedPiece result{format, values.elements(), integers, nullptr};
  result.scales = reinterpret_cast<float*>(integers + result.scales_offset());
  return result;
}

void check_floats(std::string_view what, const Tensor& tensor) {
  TESSERA_CHECK(tensor.dtype() == DType::f32, "{} of {}; expected f32", what,
                dtype_name(tensor.dtype()));
}

void quantise_piece(const Execution& execution, const QuantisedPiece& piece, const Tensor& values,
                    const FeedbackStep& feedback) {
  if (piece.elements == 0) return;
  dispatch_device(values.dtype(), [&]<typename T>(T) {
    const T* const elements = values.pointer<T>();
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        quantise_device<Vendor>(piece, elements, feedback, *execution.stream);
      });
    }
    with_kernel(execution, [&]<typename Kernel>(Kernel) {
      quantise_on_processor<Kernel>(execution, piece, elements, feedback);
    });
  });
}

void dequantise_piece(const Execution& execution, const QuantisedPiece& piece, const Tensor& values,
                      bool adds) {
  if (piece.elements == 0) return;
  dispatch_device(values.dtype(), [&]<typename T>(T) {
    T* const elements = values.pointer<T>();
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        dequantise_device<Vendor>(piece, elements, adds, *execution.stream);
      });
    }
    with_kernel(execution, [&]<typename Kernel>(Kernel) {
      dequantise_on_processor<Kernel>(execution, piece, elements, adds);
    });
  });
}

}  // namespace

int64_t quantised_bytes(const QuantisedFormat& format, int64_t elements) {
  check_format(format);
  return QuantisedPiece{format, elements}.bytes();
}

void quantise(const Execution& execution, const QuantisedFormat& format, const Tensor& values,
              const Tensor& piece) {
  quantise_piece(execution, piece_of(format, values, piece), values, {});
}

void quantise_with_feedback(const Execution& execution, const QuantisedFormat& format,
                            const Tensor& values, const ErrorFeedback& feedback,
                            const Tensor& piece) {
  check_floats("addends", values);
  check_floats("an error", feedback.error);
  TESSERA_CHECK(feedback.error.elements() == values.elements(), "an error of {} elements for {}",
                feedback.error.elements(), values.elements());
  TESSERA_CHECK(feedback.beta >= 0 && feedback.beta <= 1, "beta is {}; expected 0 to 1",
                feedback.beta);
  quantise_piece(execution, piece_of(format, values, piece), values,
                 {.error = feedback.error.pointer<float>(),
                  .beta = static_cast<float>(feedback.beta),
                  .rest = static_cast<float>(1 - feedback.beta)});
}

void dequantise(const Execution& execution, const QuantisedFormat& format, const Tensor& piece,
                const Tensor& values) {
  dequantise_piece(execution, piece_of(format, values, piece), values, /*adds=*/false);
}

void dequantise_add(const Execution& execution, const QuantisedFormat& format, const Tensor& piece,
                    const Tensor& sums) {
  check_floats("sums", sums);
  dequantise_piece(execution, piece_of(format, sums, piece), sums, /*adds=*/true);
}

}  // namespace tessera
