#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/rotary/rotary.h"
#include "ops/rotary/rotary_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Returns a frequency after RotaryScaling. Both are in radians per position.
double scaled_frequency(double frequency, const RotaryScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double stretched = frequency / scaling.factor;
  if (wavelength < scaling.original_context / scaling.high_frequency_factor) return frequency;
  if (wavelength > scaling.original_context / scaling.low_frequency_factor) return stretched;
  const double kept_share = (scaling.original_context / wavelength - scaling.low_frequency_factor) /
                            (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - kept_share) * stretched + kept_share * frequency;
}

/// Returns an angle in 2^-64 turns, without whole turns.
uint64_t fraction_of_turn(double radians) {
  const double turns = radians / (2 * std::numbers::pi);
  const double scaled = std::ldexp(turns - std::floor(turns), 64);
  // The difference may round up to a whole turn, which counts as none.
  return scaled < std::ldexp(1.0, 64) ? static_cast<uint64_t>(scaled) : 0;
}

constexpr int64_t kSineWork = 32;  // the time of a sine and a cosine, in elements of row_grain()

/// input: positions i32 [tokens]. output: [tokens, channels].
class RotaryTable final : public Operation {
 public:
  RotaryTable(const RotaryOptions& options, DType dtype)
      : options_(options), frequencies_(rotary_frequencies(options)), dtype_(dtype) {}
  std::string_view name() const override { return "rotary_table"; }

  std::string labels(std::span<const Spec>) const override { return "t -> t r"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && inputs[0].dtype == DType::i32 && inputs[0].shape.rank() == 1,
        "positions must be i32 [tokens]");
    TESSERA_EXPECT(*this, options_.channels > 0 && options_.channels % 2 == 0,
                   "{} rotated channels; it must be a positive even number", options_.channels);
    TESSERA_EXPECT(*this, options_.theta > 0, "a theta of {}; it must be positive", options_.theta);
    TESSERA_EXPECT(*this, dtype_ == DType::f32 || dtype_ == DType::f64, "a table of {}",
                   dtype_name(dtype_));
    if (const auto& scaling = options_.scaling) {
      TESSERA_EXPECT(*this,
                     scaling->factor > 0 && scaling->low_frequency_factor > 0 &&
                         scaling->high_frequency_factor > scaling->low_frequency_factor &&
                         scaling->original_context > 0,
                     "scaling by {} with frequency factors {} and {} of a context of {}",
                     scaling->factor, scaling->low_frequency_factor, scaling->high_frequency_factor,
                     scaling->original_context);
    }
    return {{{inputs[0].shape[0], options_.channels}, dtype_}};
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const int32_t* positions = execution.inputs[0].data<int32_t>();
    const int64_t half = options_.channels / 2;
    dispatch_wide(dtype_, [&]<typename Wide>(Wide) {
      Wide* table = execution.outputs[0].data<Wide>();
      // table[t, i] = cos(positions[t] * frequencies[i]); table[t, half + i] = sin(the same angle)
      parallel_each(execution.runtime.threads(), execution.inputs[0].elements(),
                    row_grain(kSineWork * half), [&](int64_t token) {
                      Wide* row = table + token * options_.channels;
                      for (int64_t i = 0; i < half; ++i) {
                        const double angle =
                            positions[token] * frequencies_[static_cast<size_t>(i)];
                        row[i] = static_cast<Wide>(std::cos(angle));
                        row[half + i] = static_cast<Wide>(std::sin(angle));
                      }
                    });
    });
  }

 private:
  void run_on_device(const Execution& execution) const {
    const RotaryTable32 table{.tokens = execution.inputs[0].elements(),
                              .channels = options_.channels,
                              .positions = execution.inputs[0].pointer<int32_t>(),
                              .table = execution.outputs[0].pointer<float>()};
    const int pairs = static_cast<int>(frequencies_.size());
    for (int first = 0; first < pairs; first += RotarySteps::kMaxCount) {
      RotarySteps steps{.first = first, .count = std::min(pairs - first, RotarySteps::kMaxCount)};
      std::transform(frequencies_.begin() + first, frequencies_.begin() + first + steps.count,
                     steps.frequencies.begin(), fraction_of_turn);
      for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        rotary_table_device<Vendor>(table, steps, *execution.stream);
      });
    }
  }

  RotaryOptions options_;
  std::vector<double> frequencies_;
  DType dtype_;
};

}  // namespace

std::vector<double> rotary_frequencies(const RotaryOptions& options) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < options.channels / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(options.channels);
    const double frequency = std::pow(options.theta, exponent);
    frequencies.push_back(options.scaling ? scaled_frequency(frequency, *options.scaling)
                                          : frequency);
  }
  return frequencies;
}

Value rotary_table(Builder& builder, Value positions, const RotaryOptions& options, DType dtype) {
  return builder.apply_single(std::make_shared<RotaryTable>(options, dtype), {positions});
}

}  // namespace tessera
