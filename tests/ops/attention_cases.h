#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/trace.h"
#include "ops/attention/attention.h"
#include "ops/attention/flash_tiles.h"
#include "ops/host_target.h"
#include "support/bits.h"

namespace tessera::testing {

/// One attention to be tested, with inputs that follow from it.
struct AttentionCase {
  int64_t sequences = 1;
  int64_t sequence = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 16;
  bool documents = false;
  double deviation = 1.0;   ///< of the inputs
  int64_t cache_bytes = 0;  ///< of the second level; 0: this processor's
  bool deterministic = true;

  Target target(int threads, Kernels kernels = Kernels::fast) const {
    Target result = host_target(threads, kernels);
    if (cache_bytes > 0) result.caches.second_level = cache_bytes;
    result.deterministic = deterministic;
    return result;
  }

  AttentionOptions options() const {
    return {.sequence = sequence, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  }
  int64_t tokens() const { return sequences * sequence; }
  Shape query_shape() const { return {tokens(), heads * head_dim}; }
  Shape key_shape() const { return {tokens(), kv_heads * head_dim}; }
  std::string text() const {
    return fmt::format("{} x {} tokens, {} heads on {} of {}{}, cache of {}", sequences, sequence,
                       heads, kv_heads, head_dim, documents ? ", documents" : "", cache_bytes);
  }

  /// Documents of random lengths, long in every other sequence and short in those between.
  std::vector<int32_t> document_starts() const {
    std::mt19937 random(static_cast<uint32_t>(tokens() * 31 + heads));
    std::vector<int32_t> starts;
    for (int64_t token = 0; token < tokens(); ++token) {
      const int64_t length = token / sequence % 2 == 0 ? sequence / 4 + 1 : 8;
      const auto index = static_cast<int32_t>(token % sequence);
      const bool begins = index == 0 || random() % static_cast<uint32_t>(length) == 0;
      starts.push_back(begins ? index : starts.back());
    }
    return starts;
  }
};

/// The inputs, rounded to `dtype`: q, k, v and the gradient of the output.
inline std::vector<Tensor> attention_inputs(const AttentionCase& test, DType dtype) {
  return {random_tensor(test.query_shape(), dtype, "q", test.deviation),
          random_tensor(test.key_shape(), dtype, "k", test.deviation),
          random_tensor(test.key_shape(), dtype, "v", test.deviation),
          random_tensor(test.query_shape(), dtype, "gradient", test.deviation)};
}

inline std::vector<double> widened(const Tensor& tensor) {
  Tensor wide(tensor.shape(), DType::f64);
  convert(tensor, wide);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

/// What an attention gives, each row-major in f64, and the FLOPs of the products that ran for it on
/// the processor.
struct AttentionResults {
  std::vector<double> output, log_sum_exp, q_gradient, k_gradient, v_gradient;
  double forward_flops = 0, backward_flops = 0;
  bool operator==(const AttentionResults&) const = default;
};

inline Bits bits_of(const AttentionResults& found) {
  return bits_of(found.output, found.log_sum_exp, found.q_gradient, found.k_gradient,
                 found.v_gradient);
}

inline double flops_that_ran(const StepTrace& step, std::string_view operation) {
  double flops = 0;
  for (const TraceEvent& event : step.events) {
    if (event.name != operation) continue;
    for (const auto& [product, runs] : event.products) {
      flops += step.products[static_cast<size_t>(product)].flops() * static_cast<double>(runs);
    }
  }
  return flops;
}

/// Runs the program of one attention forward and backward on inputs of type `dtype`, on a device if
/// one is given.
inline AttentionResults run_attention(const AttentionCase& test, DType dtype, Kernels kernels,
                                      int threads, std::span<const Tensor> inputs,
                                      const std::optional<Emulation>& device = {}) {
  Runtime runtime = make_runtime(test.target(threads, kernels), device);
  Program program;
  Builder builder(program);
  const Value q = builder.parameter("q", {test.query_shape(), dtype, {}});
  const Value k = builder.parameter("k", {test.key_shape(), dtype, {}});
  const Value v = builder.parameter("v", {test.key_shape(), dtype, {}});
  std::optional<Value> starts;
  if (test.documents) starts = builder.input("starts", {{test.tokens()}, DType::i32, {}});
  const Value output = attention(builder, q, k, v, test.options(), {.document_starts = starts});
  const Value log_sum_exp = program.nodes()[0].outputs[1];
  builder.output(output);
  builder.output(log_sum_exp);
  const Value output_gradient = builder.input("of_output", builder.spec(output));
  const Seed seed{output, output_gradient};
  differentiate(builder, std::span(&seed, 1));

  ProgramRun frame(program, runtime);
  const Value parameters[] = {q, k, v};
  for (size_t i = 0; i < 3; ++i) {
    frame.bind(parameters[i], inputs[i]);
    const Value gradient = program.main_gradient(parameters[i]);
    Tensor memory(inputs[i].shape(), accumulation_dtype(dtype));
    memory.fill_zero();
    frame.bind(gradient, memory);
  }
  frame.bind(output_gradient, inputs[3]);
  std::vector<int32_t> start_values = test.document_starts();
  if (starts) {
    frame.bind(*starts, Tensor::wrap(start_values.data(), {test.tokens()}, DType::i32));
  }
  frame.poison();
  Trace trace(runtime);
  if (!device) frame.executor().set_trace(&trace);
  frame.run();
  return {widened(frame[output]),
          widened(frame[log_sum_exp]),
          widened(frame[program.main_gradient(q)]),
          widened(frame[program.main_gradient(k)]),
          widened(frame[program.main_gradient(v)]),
          flops_that_ran(trace.step(), "attention"),
          flops_that_ran(trace.step(), "attention_gradient")};
}

inline double largest_entry(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

inline void expect_within(const std::vector<double>& found, const std::vector<double>& expected,
                          double difference, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], difference) << what << ", element " << i;
  }
}

/// Every entry within tolerance times the largest one; 1 where all are smaller, for a gradient may
/// be the difference of equal terms.
inline void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                         double tolerance, const std::string& what) {
  expect_within(found, expected, tolerance * std::max(largest_entry(expected), 1.0), what);
}

inline void expect_close(const AttentionResults& found, const AttentionResults& expected,
                         double tolerance, const std::string& what) {
  expect_close(found.output, expected.output, tolerance, what + ": output");
  expect_close(found.log_sum_exp, expected.log_sum_exp, tolerance, what + ": log-sum-exp");
  expect_close(found.q_gradient, expected.q_gradient, tolerance, what + ": gradient of q");
  expect_close(found.k_gradient, expected.k_gradient, tolerance, what + ": gradient of k");
  expect_close(found.v_gradient, expected.v_gradient, tolerance, what + ": gradient of v");
}

}  // namespace tessera::testing
