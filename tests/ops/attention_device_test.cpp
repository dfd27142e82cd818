#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/attention/attention_plain.h"
#include "ops/attention/device_attention.h"
#include "ops/attention_cases.h"
#include "support/emulated.h"

namespace tessera::testing {
namespace {

/// Inputs that say which keys a query attends to, as tensors of the processor; undefined if not
/// given.
struct CasePositions {
  Tensor document_starts;
  Tensor queries;
  Tensor keys;
};

/// The plain kernels of devices, run on a device, forward and backward.
class KernelRun {
 public:
  KernelRun(const AttentionShape& shape, DType dtype, const Emulation& emulation)
      : runtime_(make_runtime(host_target(1), emulation)),
        stream_(accelerator().make_stream()),
        shape_(shape),
        dtype_(dtype) {}

  /// `inputs`: q, k, v and the gradient of the output. Returns the output, the log-sum-exp and the
  /// gradients of q, k and v, in f64.
  std::vector<std::vector<double>> run(std::span<const Tensor> inputs,
                                       const CasePositions& positions) {
    TokenPositions on_device;
    on_device.document_starts = address_of(positions.document_starts);
    on_device.queries = address_of(positions.queries);
    on_device.keys = address_of(positions.keys);
    const Tensor q = copied(inputs[0]), k = copied(inputs[1]), v = copied(inputs[2]);
    const Tensor output_gradient = copied(inputs[3]);
    const Tensor output = memory(q.shape(), dtype_);
    const Tensor log_sum_exp = memory(shape_.row_shape(), DType::f32);
    launch({q, k, v}, {output, log_sum_exp}, {shape_, dtype_, false, on_device});
    const Tensor q_gradient = memory(q.shape(), dtype_), k_gradient = memory(k.shape(), dtype_);
    const Tensor v_gradient = memory(v.shape(), dtype_);
    launch({q, k, v, output, log_sum_exp, output_gradient}, {q_gradient, k_gradient, v_gradient},
           {shape_, dtype_, true, on_device});
    stream_->synchronize();
    std::vector<std::vector<double>> results;
    for (const Tensor& tensor : {output, log_sum_exp, q_gradient, k_gradient, v_gradient}) {
      results.push_back(widened(on_host(tensor)));
    }
    return results;
  }

 private:
  Accelerator& accelerator() { return *runtime_.accelerator(); }

  /// Memory of exactly these bytes, so that the address sanitizer finds accesses beyond it.
  Tensor memory(const Shape& shape, DType dtype) {
    memory_.push_back(accelerator().allocate(shape.elements() * dtype_size(dtype)));
    return Tensor::wrap(memory_.back()->address(), shape, dtype, &accelerator());
  }
  Tensor copied(const Tensor& tensor) {
    const Tensor result = memory(tensor.shape(), tensor.dtype());
    upload({tensor.raw(), static_cast<size_t>(tensor.bytes())}, result);
    return result;
  }
  const int32_t* address_of(const Tensor& tensor) {
    return tensor.defined() ? copied(tensor).pointer<int32_t>() : nullptr;
  }
  void launch(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
              const DeviceAttention& attention) {
    const int64_t bytes = attention_kernels_workspace(attention);
    memory_.push_back(accelerator().allocate(bytes));
    const std::span workspace(static_cast<std::byte*>(memory_.back()->address()),
                              static_cast<size_t>(bytes));
    run_attention_kernels({runtime_, inputs, outputs, workspace, stream_.get()}, attention);
  }

  Runtime runtime_;
  std::shared_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  AttentionShape shape_;
  DType dtype_;
};

/// The definition of attention, in f64 on the same inputs.
std::vector<std::vector<double>> expected_results(const AttentionShape& shape,
                                                  std::span<const Tensor> inputs,
                                                  const CasePositions& positions) {
  std::vector<Tensor> wide;
  for (const Tensor& input : inputs) {
    wide.emplace_back(input.shape(), DType::f64);
    convert(input, wide.back());
  }
  std::vector<int32_t> begin, end;
  for (int64_t token = 0; token < shape.tokens(); ++token) {
    const auto number = [&](const Tensor& of, int64_t row, int64_t otherwise) {
      return of.defined() ? of.data<int32_t>()[row] : static_cast<int32_t>(otherwise);
    };
    const int32_t position = number(positions.queries, token, token % shape.sequence);
    const int32_t start = number(positions.document_starts, token, 0);
    int32_t first = 0, last = 0;
    for (int64_t key = 0; key < shape.keys; ++key) {
      const int64_t sequence = token / shape.sequence;
      const int32_t at = number(positions.keys, sequence * shape.keys + key, key);
      if (at < start) ++first;
      if (at <= position) ++last;
    }
    begin.push_back(std::min(first, last));
    end.push_back(last);
  }
  const KeyRanges ranges{begin.data(), end.data()};
  const Tensor output(wide[0].shape(), DType::f64), log_sum_exp(shape.row_shape(), DType::f64);
  const Tensor q_gradient(wide[0].shape(), DType::f64), k_gradient(wide[1].shape(), DType::f64);
  const Tensor v_gradient(wide[1].shape(), DType::f64);
  std::vector<double> scratch(static_cast<size_t>((2 * shape.keys + 1) * shape.head_dim));
  const double* const q = wide[0].data<double>();
  const double* const k = wide[1].data<double>();
  const double* const v = wide[2].data<double>();
  attention_plain(shape, q, k, v, ranges, output.data<double>(), log_sum_exp.data<double>(),
                  scratch.data(), 1);
  attention_gradient_plain(
      shape,
      AttentionGradientOperands<double>{q, k, v, output.data<double>(), log_sum_exp.data<double>(),
                                        wide[3].data<double>(), ranges, q_gradient.data<double>(),
                                        k_gradient.data<double>(), v_gradient.data<double>()},
      scratch.data(), 1);
  return {widened(output), widened(log_sum_exp), widened(q_gradient), widened(k_gradient),
          widened(v_gradient)};
}

double largest_finite(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// Compares the kernels with the definition.
void expect_kernels_agree(const AttentionShape& shape, DType dtype, const CasePositions& positions,
                          int lanes) {
  const Shape query_shape{shape.tokens(), shape.query_stride()};
  const Shape key_shape{shape.sequences * shape.keys, shape.key_stride()};
  const std::vector<Tensor> inputs{
      random_tensor(query_shape, dtype, "q"), random_tensor(key_shape, dtype, "k"),
      random_tensor(key_shape, dtype, "v"), random_tensor(query_shape, dtype, "gradient")};
  const auto expected = expected_results(shape, inputs, positions);
  // The kernels round the output to its type before the backward pass reads it.
  const double tolerance = dtype == DType::bf16 ? 4 * kBFloat16Rounding : 1e-5;
  expect_equal_bits_on_devices(
      lanes,
      [&](const Emulation& device) {
        return KernelRun(shape, dtype, device).run(inputs, positions);
      },
      [&](const std::vector<std::vector<double>>& results) {
        for (size_t i = 0; i < results.size(); ++i) {
          ASSERT_EQ(results[i].size(), expected[i].size());
          for (size_t e = 0; e < results[i].size(); ++e) {
            if (results[i][e] == expected[i][e]) continue;  // -infinity
            ASSERT_NEAR(results[i][e], expected[i][e],
                        tolerance * std::max(largest_finite(expected[i]), 1.0))
                << "result " << i << ", element " << e;
          }
        }
      });
}

AttentionShape shape_of(const AttentionCase& test) {
  return attention_shape(test.options(), test.tokens(), test.sequence);
}

Tensor positions_tensor(const std::vector<int32_t>& values) {
  const Tensor result({static_cast<int64_t>(values.size())}, DType::i32);
  std::ranges::copy(values, result.data<int32_t>());
  return result;
}

/// A few cases: an emulated thread takes its time.
TEST(AttentionOfTheDevicesKernels, AgreesWithTheDefinition) {
  const AttentionCase cases[] = {
      {.sequence = 1, .heads = 2, .kv_heads = 1, .head_dim = 1},
      {.sequences = 2, .sequence = 33, .heads = 2, .kv_heads = 1, .head_dim = 6},
      {.sequences = 2, .sequence = 19, .heads = 4, .kv_heads = 2, .head_dim = 8, .documents = true},
      {.sequence = 66, .heads = 1, .kv_heads = 1, .head_dim = 4},
      {.sequence = 20, .heads = 1, .kv_heads = 1, .head_dim = 72},
      {.sequence = 12, .heads = 1, .kv_heads = 1, .head_dim = 136, .documents = true}};
  for (const AttentionCase& test : cases) {
    CasePositions positions;
    if (test.documents) positions.document_starts = positions_tensor(test.document_starts());
    for (const int lanes : {32, 64}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(test.text());
        expect_kernels_agree(shape_of(test), dtype, positions, lanes);
      }
    }
  }
}

RC_GTEST_PROP(AttentionOfTheDevicesKernels, TakesPartsOfQueriesAndKeys, ()) {
  // The queries and keys are random tokens of 40; some queries have no key.
  const auto some = [] {
    std::vector<int32_t> positions;
    for (int32_t token = 0; token < 40; ++token) {
      if (*rc::gen::arbitrary<bool>()) positions.push_back(token);
    }
    if (positions.empty()) positions.push_back(39);
    return positions;
  };
  const std::vector<int32_t> queries = some(), keys = some();
  AttentionOptions options{.sequence = std::ssize(queries),
                           .keys = std::ssize(keys),
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 4};
  AttentionShape shape = attention_shape(options, std::ssize(queries), std::ssize(queries));
  shape.aligned = false;
  CasePositions positions{.queries = positions_tensor(queries), .keys = positions_tensor(keys)};
  if (*rc::gen::arbitrary<bool>()) {
    std::vector<int32_t> starts;
    for (const int32_t position : queries) starts.push_back(position / 20 * 20);
    positions.document_starts = positions_tensor(starts);
  }
  expect_kernels_agree(shape, DType::f32, positions, *rc::gen::element(32, 64));
  RC_ASSERT(!::testing::Test::HasFailure());
}

}  // namespace
}  // namespace tessera::testing
