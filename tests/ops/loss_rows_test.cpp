#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "device/vendor.h"
#include "ops/loss/cross_entropy_rows.h"
#include "ops/loss/loss_rows_kernels.h"
#include "support/emulated.h"

namespace tessera {
namespace {

/// An array in a device's memory.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Accelerator& accelerator, const std::vector<T>& values)
      : accelerator_(accelerator),
        size_(values.size()),
        memory_(accelerator.allocate(static_cast<int64_t>(size_ * sizeof(T)))) {
    accelerator.upload(std::as_bytes(std::span(values)), memory_->address());
  }
  template <typename Element = T>
  Element* address() const {
    return static_cast<Element*>(memory_->address());
  }
  /// The bytes as elements of another type.
  template <typename Element = T>
  std::vector<Element> read() const {
    std::vector<Element> values(size_ * sizeof(T) / sizeof(Element));
    accelerator_.readback(memory_->address(), std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  Accelerator& accelerator_;
  size_t size_;
  std::unique_ptr<DeviceMemory> memory_;
};

std::vector<float> random_floats(size_t count, const std::string& name, double deviation) {
  const Tensor tensor =
      testing::random_tensor({static_cast<int64_t>(count)}, DType::f32, name, deviation);
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

struct LossCase {
  size_t rows, vocabulary;
  float z;
  bool gradient;
  std::vector<float> logits;
  std::vector<int32_t> targets;
  float seed = 0.75f;
};

LossCase random_loss_case() {
  LossCase loss{.rows = *rc::gen::inRange<size_t>(1, 5),
                .vocabulary = *rc::gen::element<size_t>(1, 7, 8, 33, 264, 3001, 9001, 20000),
                .z = *rc::gen::element(0.0f, 1e-2f),
                .gradient = *rc::gen::arbitrary<bool>()};
  loss.logits = random_floats(loss.rows * loss.vocabulary, "logits", 4);
  for (size_t row = 0; row < loss.rows; ++row) {
    const auto classes = static_cast<int32_t>(loss.vocabulary);
    loss.targets.push_back(*rc::gen::element(-1, 0, classes - 1, classes / 2));
  }
  return loss;
}

/// What a chunk of rows gives; all as f32.
struct LossResult {
  std::vector<float> log_sum_exp, token_loss;
  std::vector<float> gradient;  // [rows, vocabulary], or the logits' memory if there is none
};

testing::Bits bits_of(const LossResult& result) {
  return testing::bits_of(result.log_sum_exp, result.token_loss, result.gradient);
}

template <typename T>
LossResult run_on_device(const LossCase& loss, const testing::Emulation& device) {
  Runtime runtime = testing::make_runtime(host_target(1), device);
  Accelerator* const accelerator = runtime.accelerator();
  const auto stream = accelerator->make_stream();
  const std::vector<float> unwritten(loss.rows, std::numeric_limits<float>::quiet_NaN());
  const DeviceArray<float> logits(*accelerator, loss.logits);
  const DeviceArray<int32_t> targets(*accelerator, loss.targets);
  const DeviceArray<float> seed(*accelerator, {loss.seed});
  const DeviceArray<float> token_loss(*accelerator, unwritten);
  const DeviceArray<float> log_sum_exp(*accelerator, unwritten);
  const auto stride = static_cast<int64_t>(loss.vocabulary * sizeof(float) / sizeof(T));
  const LossRows<T> rows{.rows = static_cast<int64_t>(loss.rows),
                         .vocabulary = static_cast<int64_t>(loss.vocabulary),
                         .logits = logits.address(),
                         .targets = targets.address(),
                         .seed = loss.gradient ? seed.address() : nullptr,
                         .z = loss.z,
                         .token_loss = token_loss.address(),
                         .log_sum_exp = log_sum_exp.address(),
                         .gradient = logits.template address<T>(),
                         .gradient_stride = stride};
  for_vendor(*stream, [&](auto vendor) { loss_rows_device<decltype(vendor)>(rows, *stream); });
  stream->synchronize();
  LossResult result{log_sum_exp.read(), token_loss.read(), {}};
  if (!loss.gradient) {
    result.gradient = logits.read();
    return result;
  }
  const std::vector<T> gradient = logits.template read<T>();
  for (size_t row = 0; row < loss.rows; ++row) {
    for (size_t v = 0; v < loss.vocabulary; ++v) {
      result.gradient.push_back(
          static_cast<float>(gradient[row * static_cast<size_t>(stride) + v]));
    }
  }
  return result;
}

/// The classes of a rank that shares the vocabulary, on its device.
template <typename T>
class LossPart {
 public:
  /// Classes [first, end).
  LossPart(const LossCase& loss, size_t first, size_t end, const testing::Emulation& device)
      : loss_(loss),
        classes_(end - first),
        runtime_(testing::make_runtime(host_target(1), device)),
        stream_(runtime_.accelerator()->make_stream()),
        logits_(accelerator(), columns(loss, first, end)),
        targets_(accelerator(), loss.targets),
        seed_(accelerator(), {loss.seed}),
        token_loss_(accelerator(), unwritten(loss.rows)),
        log_sum_exp_(accelerator(), unwritten(loss.rows)),
        largest_(accelerator(), unwritten(loss.rows)),
        sums_(accelerator(), unwritten(2 * loss.rows)),
        split_{.loss = {.rows = static_cast<int64_t>(loss.rows),
                        .vocabulary = static_cast<int64_t>(classes_),
                        .logits = logits_.address(),
                        .targets = targets_.address(),
                        .seed = loss.gradient ? seed_.address() : nullptr,
                        .z = loss.z,
                        .token_loss = token_loss_.address(),
                        .log_sum_exp = log_sum_exp_.address(),
                        .gradient = logits_.template address<T>(),
                        .gradient_stride = stride()},
               .first = static_cast<int64_t>(first),
               .largest = largest_.address(),
               .sums = sums_.address()} {}

  std::vector<float> largest() {
    run([&](auto vendor) {
      split_rows_device<decltype(vendor)>(SplitLossStep::largest, split_, *stream_);
    });
    return largest_.read();
  }
  std::vector<float> sums(const std::vector<float>& largest) {
    accelerator().upload(std::as_bytes(std::span(largest)), largest_.address());
    run([&](auto vendor) {
      split_rows_device<decltype(vendor)>(SplitLossStep::sums, split_, *stream_);
    });
    return sums_.read();
  }
  LossResult results(const std::vector<float>& sums) {
    accelerator().upload(std::as_bytes(std::span(sums)), sums_.address());
    run([&](auto vendor) {
      split_rows_device<decltype(vendor)>(SplitLossStep::results, split_, *stream_);
    });
    return {log_sum_exp_.read(), token_loss_.read(), {}};
  }
  /// Puts the gradient in its place among those of all ranks.
  void place_gradient(size_t first, std::vector<float>& gradient) const {
    const std::vector<T> own = logits_.template read<T>();
    for (size_t row = 0; row < loss_.rows; ++row) {
      for (size_t v = 0; v < classes_; ++v) {
        gradient[row * loss_.vocabulary + first + v] =
            static_cast<float>(own[row * static_cast<size_t>(stride()) + v]);
      }
    }
  }

 private:
  static std::vector<float> unwritten(size_t count) {
    return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
  }
  static std::vector<float> columns(const LossCase& loss, size_t first, size_t end) {
    std::vector<float> result;
    for (size_t row = 0; row < loss.rows; ++row) {
      for (size_t v = first; v < end; ++v) {
        result.push_back(loss.logits[row * loss.vocabulary + v]);
      }
    }
    return result;
  }
  Accelerator& accelerator() { return *runtime_.accelerator(); }
  int64_t stride() const { return static_cast<int64_t>(classes_ * sizeof(float) / sizeof(T)); }
  template <typename Body>
  void run(Body&& body) {
    for_vendor(*stream_, body);
    stream_->synchronize();
  }

  const LossCase& loss_;
  size_t classes_;
  Runtime runtime_;
  std::shared_ptr<Stream> stream_;
  DeviceArray<float> logits_;
  DeviceArray<int32_t> targets_;
  DeviceArray<float> seed_, token_loss_, log_sum_exp_, largest_, sums_;
  SplitLossRows<T> split_;
};

/// The same of ranks that share the vocabulary in two parts, before class `cut` and from it on.
template <typename T>
LossResult run_split_on_device(const LossCase& loss, size_t cut, const testing::Emulation& device) {
  LossPart<T> left(loss, 0, cut, device), right(loss, cut, loss.vocabulary, device);
  std::vector<float> largest = left.largest();
  const std::vector<float> other_largest = right.largest();
  for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], other_largest[i]);
  std::vector<float> sums = left.sums(largest);
  const std::vector<float> other_sums = right.sums(largest);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += other_sums[i];
  LossResult result = left.results(sums);
  const LossResult other = right.results(sums);
  EXPECT_EQ(result.log_sum_exp, other.log_sum_exp);
  EXPECT_EQ(result.token_loss, other.token_loss);
  result.gradient = loss.logits;
  if (loss.gradient) {
    left.place_gradient(0, result.gradient);
    right.place_gradient(cut, result.gradient);
  }
  return result;
}

/// The plain kernel in f64 on the same logits.
void expect_row(const LossCase& loss, size_t row, const LossResult& actual, double rounding) {
  const auto from = loss.logits.begin() + static_cast<std::ptrdiff_t>(row * loss.vocabulary);
  const std::vector<double> logits(from, from + static_cast<std::ptrdiff_t>(loss.vocabulary));
  const auto classes = static_cast<int64_t>(loss.vocabulary);
  const int32_t target = loss.targets[row];
  const double sum = row_log_sum_exp<PlainRows<double>>(logits.data(), classes);
  ASSERT_NEAR(actual.log_sum_exp[row], sum, 1e-5);
  const double token_loss = target >= 0 ? sum - logits[static_cast<size_t>(target)] : 0;
  ASSERT_NEAR(actual.token_loss[row], token_loss, 1e-5);
  if (!loss.gradient) return;
  std::vector<double> gradient(loss.vocabulary);
  PlainRows<double>::gradient(logits.data(), classes, sum, target,
                              target >= 0 ? double{loss.seed} : 0.0, double{loss.z},
                              gradient.data());
  for (size_t v = 0; v < loss.vocabulary; ++v) {
    // Where a probability and one cancel, f32 keeps the accuracy of the one.
    ASSERT_NEAR(actual.gradient[row * loss.vocabulary + v], gradient[v],
                (rounding + 1e-5) * std::abs(gradient[v]) + 1e-6)
        << "row " << row << ", class " << v;
  }
}

RC_GTEST_PROP(LossRows, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const LossCase loss = random_loss_case();
  const bool narrow = *rc::gen::arbitrary<bool>();
  testing::expect_equal_bits_on_devices(
      testing::any_lanes(),
      [&](const testing::Emulation& device) {
        return narrow ? run_on_device<BFloat16>(loss, device) : run_on_device<float>(loss, device);
      },
      [&](const LossResult& result) {
        for (size_t row = 0; row < loss.rows; ++row) {
          expect_row(loss, row, result, narrow ? testing::kBFloat16Rounding : 0);
        }
        if (!loss.gradient) {
          ASSERT_EQ(result.gradient, loss.logits);
        }
      });
}

RC_GTEST_PROP(LossRows, TheDevicesKernelsForAPartAgreeWithThePlainOnes, ()) {
  LossCase loss = random_loss_case();
  RC_PRE(loss.vocabulary > 1);
  const auto cut = *rc::gen::element<size_t>(1, loss.vocabulary / 2, loss.vocabulary - 1,
                                             loss.vocabulary / 3 + 1);
  RC_PRE(cut < loss.vocabulary);
  const bool narrow = *rc::gen::arbitrary<bool>();
  testing::expect_equal_bits_on_devices(
      testing::any_lanes(),
      [&](const testing::Emulation& device) {
        return narrow ? run_split_on_device<BFloat16>(loss, cut, device)
                      : run_split_on_device<float>(loss, cut, device);
      },
      [&](const LossResult& result) {
        for (size_t row = 0; row < loss.rows; ++row) {
          expect_row(loss, row, result, narrow ? testing::kBFloat16Rounding : 0);
        }
      });
}

RC_GTEST_PROP(LossSum, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const auto tokens = *rc::gen::element<size_t>(1, 63, 1024, 2500);
  const std::vector<float> token_loss = random_floats(tokens, "token loss", 1);
  const std::vector<float> log_sum_exp = random_floats(tokens, "log-sum-exp", 5);
  const auto without = *rc::gen::element<size_t>(1, 2, 7);
  std::vector<int32_t> targets;
  double expected = 0;
  for (size_t t = 0; t < tokens; ++t) {
    targets.push_back(t % without == without - 1 ? -1 : 3);
    const double sum = log_sum_exp[t];
    if (targets[t] >= 0) expected += double{token_loss[t]} + 1e-2 * sum * sum;
  }
  const auto sum_on = [&](const testing::Emulation& device) {
    Runtime runtime = testing::make_runtime(host_target(1), device);
    Accelerator& accelerator = *runtime.accelerator();
    const auto stream = accelerator.make_stream();
    const DeviceArray<int32_t> device_targets(accelerator, targets);
    const DeviceArray<float> device_token_loss(accelerator, token_loss);
    const DeviceArray<float> device_log_sum_exp(accelerator, log_sum_exp);
    const DeviceArray<float> result(accelerator, {-1.0f});
    const LossSum sum{.tokens = static_cast<int64_t>(tokens),
                      .z = 1e-2,
                      .targets = device_targets.address(),
                      .token_loss = device_token_loss.address(),
                      .log_sum_exp = device_log_sum_exp.address(),
                      .loss = result.address()};
    for_vendor(*stream, [&](auto vendor) { loss_sum_device<decltype(vendor)>(sum, *stream); });
    stream->synchronize();
    return result.read();
  };
  testing::expect_equal_bits_on_devices(testing::any_lanes(), sum_on,
                                        [&](const std::vector<float>& sum) {
                                          ASSERT_FLOAT_EQ(sum[0], static_cast<float>(expected));
                                        });
}

}  // namespace
}  // namespace tessera
