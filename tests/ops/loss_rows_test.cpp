#include <span>
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

/// The plain kernel in f64 on the same logits.
void expect_row(const LossCase& loss, size_t row, const LossResult& actual, double rounding) {
  const auto from = loss.logits.begin() + static_cast<std::ptrdiff_t>(row * loss.vocabulary);
  const std::vector<double> logits(from, from + static_cast<std::ptrdiff_t>(loss.vocabulary));
  const auto classes = static_cast<int64_t>(loss.vocabulary);
  const int32_t target = loss.targets[row];
  const double sum = PlainRows<double>::log_sum_exp(logits.data(), classes);
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
