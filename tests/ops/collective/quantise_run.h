#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/collective/quantise.h"
#include "support/run_program.h"

namespace tessera::testing {

using Bytes = std::vector<unsigned char>;

/// What the functions of ops/collective/quantise.h run on.
struct QuantiseOptions {
  Kernels kernels = Kernels::fast;
  int threads = 1;
  std::optional<Emulation> device = {};
  int64_t offset = 0;  ///< elements from an aligned address to those of tensors that are no pieces
};

/// Runs the functions on copies of host tensors, in memory of the processor or of a device. Fails
/// the test if one of them writes outside of its tensors.
class QuantiseRun {
 public:
  QuantiseRun(const QuantisedFormat& format, const QuantiseOptions& options)
      : format_(format),
        offset_(options.offset),
        runtime_(make_runtime(host_target(options.threads, options.kernels), options.device)) {
    if (options.device) stream_ = runtime_.accelerator()->make_stream();
  }

  Bytes quantise(const Tensor& values) {
    Guarded from(*this, values), piece = empty_piece(values.elements());
    run([&] { tessera::quantise(execution(), format_, from.tensor(), piece.tensor()); });
    return bytes_of(piece.back());
  }
  /// Updates `error`.
  Bytes quantise_with_feedback(const Tensor& values, const Tensor& error, double beta) {
    Guarded from(*this, values), e(*this, error), piece = empty_piece(values.elements());
    run([&] {
      tessera::quantise_with_feedback(execution(), format_, from.tensor(),
                                      {.error = e.tensor(), .beta = beta}, piece.tensor());
    });
    error.copy_from(e.back());
    return bytes_of(piece.back());
  }
  Tensor dequantise(const Bytes& bytes, int64_t elements, DType dtype) {
    Guarded piece(*this, piece_tensor(bytes), 0), to(*this, garbage({elements}, dtype));
    run([&] { tessera::dequantise(execution(), format_, piece.tensor(), to.tensor()); });
    return to.back();
  }
  Tensor dequantise_add(const Bytes& bytes, const Tensor& sums) {
    Guarded piece(*this, piece_tensor(bytes), 0), to(*this, sums);
    run([&] { tessera::dequantise_add(execution(), format_, piece.tensor(), to.tensor()); });
    return to.back();
  }

 private:
  static constexpr int64_t kGuard = 64;  // bytes before and behind a tensor

  /// A copy of a host tensor between bytes that must not change.
  class Guarded {
   public:
    Guarded(QuantiseRun& run, const Tensor& values)
        : Guarded(run, values, run.offset_ * dtype_size(values.dtype())) {}
    Guarded(QuantiseRun& run, const Tensor& values, int64_t offset)
        : first_(kGuard + offset),
          shape_(values.shape()),
          dtype_(values.dtype()),
          accelerator_(run.runtime_.accelerator()),
          image_(garbage({first_ + values.bytes() + kGuard}, DType::u8)) {
      std::copy_n(values.raw(), values.bytes(), image_.raw() + first_);
      if (accelerator_ == nullptr) {
        all_ = garbage(image_.shape(), DType::u8);
        all_.copy_from(image_);
        return;
      }
      memory_ = accelerator_->allocate(image_.bytes());
      all_ = Tensor::wrap(memory_->address(), image_.shape(), DType::u8, accelerator_);
      upload({image_.raw(), static_cast<size_t>(image_.bytes())}, all_);
    }

    Tensor tensor() const {
      return Tensor::wrap(static_cast<std::byte*>(all_.address()) + first_, shape_, dtype_,
                          accelerator_);
    }
    /// Copies the tensor back to the host, after a look at the bytes around it.
    Tensor back() const {
      const Tensor now = on_host(all_);
      Tensor result(shape_, dtype_);
      std::copy_n(now.raw() + first_, result.bytes(), result.raw());
      const auto same = [&](int64_t begin, int64_t end) {
        return std::equal(now.raw() + begin, now.raw() + end, image_.raw() + begin);
      };
      EXPECT_TRUE(same(0, first_)) << "bytes before a tensor changed";
      EXPECT_TRUE(same(first_ + result.bytes(), image_.bytes())) << "bytes behind a tensor changed";
      return result;
    }

   private:
    int64_t first_;
    Shape shape_;
    DType dtype_;
    Accelerator* accelerator_;
    Tensor image_, all_;
    std::unique_ptr<DeviceMemory> memory_;
  };

  static Tensor garbage(const Shape& shape, DType dtype) {
    Tensor tensor(shape, dtype);
    std::fill_n(tensor.raw(), tensor.bytes(), std::byte{0xa5});
    return tensor;
  }
  static Tensor piece_tensor(const Bytes& bytes) {
    Tensor piece({static_cast<int64_t>(bytes.size())}, DType::u8);
    std::ranges::copy(bytes, piece.data<uint8_t>());
    return piece;
  }
  static Bytes bytes_of(const Tensor& piece) {
    return {piece.values<uint8_t>().begin(), piece.values<uint8_t>().end()};
  }
  Guarded empty_piece(int64_t elements) {
    return {*this, garbage({quantised_bytes(format_, elements)}, DType::u8), 0};
  }
  Execution execution() {
    return {.runtime = runtime_,
            .inputs = {},
            .outputs = {},
            .workspace = {},
            .stream = stream_.get(),
            .name = "values"};
  }
  template <typename Body>
  void run(Body&& body) {
    body();
    if (stream_ != nullptr) stream_->synchronize();
  }

  QuantisedFormat format_;
  int64_t offset_;
  Runtime runtime_;
  std::shared_ptr<Stream> stream_;
};

/// Random numbers whose magnitudes differ from one run of 16 to the next, with zeros and denormal
/// numbers, in f32 or bf16.
inline Tensor numbers_of_all_sizes(int64_t elements, DType dtype, uint64_t seed) {
  const CounterRandom random(seed, "numbers"), sizes(seed, "sizes"), kinds(seed, "kinds");
  const Tensor wide({elements}, DType::f64);
  for (int64_t i = 0; i < elements; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const uint64_t of_run = sizes.bits(index / 16);
    // 2^-140 to 2^120, or ordinary ones
    const int exponent = of_run % 2 == 0 ? 0 : static_cast<int>(of_run / 2 % 261) - 140;
    const uint64_t kind = kinds.bits(index) % 16;
    const double number = std::ldexp(random.normal(index), exponent);
    wide.data<double>()[i] = kind == 0 ? 0.0 : kind == 1 ? std::ldexp(number, -130) : number;
  }
  Tensor result({elements}, dtype);
  convert(wide, result);
  return result;
}

/// Writes a number to an element of a tensor of f32 or bf16.
inline void plant(const Tensor& tensor, int64_t index, float number) {
  if (tensor.dtype() == DType::f32) {
    tensor.data<float>()[index] = number;
  } else {
    tensor.data<BFloat16>()[index] = BFloat16(number);
  }
}

/// The bits of a tensor's elements as f32. A NaN has many, of which this gives one.
inline std::vector<uint32_t> bits_of_numbers(const Tensor& tensor) {
  std::vector<uint32_t> bits;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const float number = tensor.dtype() == DType::f32
                             ? tensor.data<float>()[i]
                             : static_cast<float>(tensor.data<BFloat16>()[i]);
    bits.push_back(std::isnan(number) ? 0x7fc00000u : std::bit_cast<uint32_t>(number));
  }
  return bits;
}

/// A format with a random block, most of them short.
inline QuantisedFormat any_format() {
  const QuantisedFormat format{
      *rc::gen::element(QuantisedType::int8, QuantisedType::int4),
      *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 70),
                      rc::gen::element<int64_t>(8, 64, 256, 264, 300, 512, 1000, 1024, 4096))};
  return {format.type,
          format.type == QuantisedType::int4 ? round_up(format.block, 2) : format.block};
}

/// A random number of elements, of a few blocks or less.
inline int64_t any_elements(const QuantisedFormat& format) {
  return *rc::gen::inRange<int64_t>(1, 3 * format.block + 20);
}

}  // namespace tessera::testing
