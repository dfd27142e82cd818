#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/attention_cases.h"
#include "support/error_of.h"

namespace tessera::testing {
namespace {

/// Which of a sequence's tokens a part has, as positions.
using Positions = std::vector<int32_t>;

Positions range_of(int64_t begin, int64_t end) {
  Positions positions(static_cast<size_t>(end - begin));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
  return positions;
}

/// Chunks i and 2n-1-i of 2n: what rank i of n context-parallel ranks has (Llama 3 §3.3.2).
Positions zigzag(int64_t length, int64_t rank, int64_t ranks) {
  const auto edge = [&](int64_t chunk) { return length * chunk / (2 * ranks); };
  Positions positions = range_of(edge(rank), edge(rank + 1));
  const Positions second = range_of(edge(2 * ranks - 1 - rank), edge(2 * ranks - rank));
  positions.insert(positions.end(), second.begin(), second.end());
  return positions;
}

/// The rows of a tensor [sequences · length, width] at these positions of each sequence.
Tensor rows_at(const Tensor& whole, int64_t length, const Positions& positions) {
  const int64_t sequences = whole.shape()[0] / length;
  const auto count = static_cast<int64_t>(positions.size());
  const Tensor part({sequences * count, whole.shape()[1]}, whole.dtype());
  for (int64_t row = 0; row < sequences * count; ++row) {
    const int64_t from = row / count * length + positions[static_cast<size_t>(row % count)];
    part.slice(row, row + 1).copy_from(whole.slice(from, from + 1));
  }
  return part;
}

/// Adds the rows of a part at their positions to the whole, both as numbers.
void add_rows(std::vector<double>& whole, const std::vector<double>& part, int64_t sequences,
              int64_t length, const Positions& positions) {
  const auto count = static_cast<int64_t>(positions.size());
  const int64_t width = std::ssize(whole) / (sequences * length);
  for (int64_t row = 0; row < sequences * count; ++row) {
    const int64_t to = row / count * length + positions[static_cast<size_t>(row % count)];
    for (int64_t e = 0; e < width; ++e) {
      whole[static_cast<size_t>(to * width + e)] += part[static_cast<size_t>(row * width + e)];
    }
  }
}

Tensor repeated(const std::vector<int32_t>& values, int64_t times) {
  const auto count = static_cast<int64_t>(values.size());
  const Tensor result({count * times}, DType::i32);
  for (int64_t i = 0; i < count * times; ++i) {
    result.data<int32_t>()[i] = values[static_cast<size_t>(i % count)];
  }
  return result;
}

/// Numbers as a tensor.
Tensor narrowed(std::vector<double> numbers, const Shape& shape, DType dtype) {
  const Tensor result(shape, dtype);
  convert(Tensor::wrap(numbers.data(), shape, DType::f64), result);
  return result;
}

/// Attention of some queries on some keys of the case's sequences, forward and backward.
AttentionResults run_part(const AttentionCase& test, DType dtype, Kernels kernels,
                          std::span<const Tensor> inputs, const Positions& queries,
                          const Positions& keys) {
  Runtime runtime(test.target(2, kernels));
  Program program;
  Builder builder(program);
  const int64_t length = test.sequence;
  const Tensor parts[] = {rows_at(inputs[0], length, queries), rows_at(inputs[1], length, keys),
                          rows_at(inputs[2], length, keys), rows_at(inputs[3], length, queries)};
  const char* const names[] = {"q", "k", "v"};
  std::vector<Value> values;
  for (size_t i = 0; i < 3; ++i) {
    values.push_back(builder.parameter(names[i], {parts[i].shape(), dtype, {}}));
  }
  const auto ids = [&](const char* name, const Positions& of) {
    const auto rows = test.sequences * static_cast<int64_t>(of.size());
    return builder.input(name, {{rows}, DType::i32, {}});
  };
  AttentionPositions positions{.queries = ids("positions", queries),
                               .keys = ids("key_positions", keys)};
  if (test.documents) positions.document_starts = ids("starts", queries);
  AttentionOptions options = test.options();
  options.sequence = std::ssize(queries);
  options.keys = std::ssize(keys);
  const auto [output, log_sum_exp] =
      attention_part(builder, values[0], values[1], values[2], options, positions);
  builder.output(output);
  builder.output(log_sum_exp);
  const Seed seed{output, builder.input("of_output", builder.spec(output))};
  differentiate(builder, std::span(&seed, 1));
  ProgramRun run(program, runtime);
  for (size_t i = 0; i < 3; ++i) run.bind(values[i], parts[i]);
  run.bind(seed.gradient, parts[3]);
  run.bind(*positions.queries, repeated(queries, test.sequences));
  run.bind(*positions.keys, repeated(keys, test.sequences));
  if (test.documents) {
    std::vector<int32_t> starts = test.document_starts();
    const Tensor all = Tensor::wrap(starts.data(), {test.tokens(), 1}, DType::i32);
    run.bind(*positions.document_starts,
             rows_at(all, length, queries).reshape({test.sequences * std::ssize(queries)}));
  }
  run.poison();
  run.run();
  return {widened(run[output]),
          widened(run[log_sum_exp]),
          widened(run[program.main_gradient(values[0])]),
          widened(run[program.main_gradient(values[1])]),
          widened(run[program.main_gradient(values[2])]),
          0,
          0};
}

/// Parts of the queries on all keys, put together, against the whole.
void expect_parts_of_queries(const AttentionCase& test, DType dtype, Kernels kernels,
                             const std::vector<Positions>& parts, double tolerance) {
  const auto inputs = attention_inputs(test, dtype);
  const AttentionResults whole = run_attention(test, dtype, kernels, 2, inputs);
  AttentionResults sum{std::vector<double>(whole.output.size()),
                       {},
                       std::vector<double>(whole.q_gradient.size()),
                       std::vector<double>(whole.k_gradient.size()),
                       std::vector<double>(whole.v_gradient.size())};
  const Positions keys = range_of(0, test.sequence);
  for (const Positions& queries : parts) {
    const AttentionResults part = run_part(test, dtype, kernels, inputs, queries, keys);
    add_rows(sum.output, part.output, test.sequences, test.sequence, queries);
    add_rows(sum.q_gradient, part.q_gradient, test.sequences, test.sequence, queries);
    add_rows(sum.k_gradient, part.k_gradient, test.sequences, test.sequence, keys);
    add_rows(sum.v_gradient, part.v_gradient, test.sequences, test.sequence, keys);
  }
  // Where tokens attend themselves alone, the terms of dQ and dK cancel, and roundings of them are
  // left. The terms are as large as dV.
  const double terms = largest_entry(whole.v_gradient);
  for (const auto& [found, expected, scale, what] :
       {std::tuple(&sum.output, &whole.output, 0.0, "output"),
        std::tuple(&sum.q_gradient, &whole.q_gradient, terms, "dQ"),
        std::tuple(&sum.k_gradient, &whole.k_gradient, terms, "dK"),
        std::tuple(&sum.v_gradient, &whole.v_gradient, 0.0, "dV")}) {
    expect_within(*found, *expected, tolerance * std::max(scale, largest_entry(*expected)),
                  fmt::format("{} of {}", what, test.text()));
  }
}

TEST(AttentionPlaces, ContextParallelQueriesGiveTheWholesResults) {
  for (const int64_t length : {8, 300, 1100}) {
    for (const bool documents : {false, true}) {
      const AttentionCase test{.sequences = 2,
                               .sequence = length,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 8,
                               .documents = documents,
                               .cache_bytes = 128 << 10};
      std::vector<Positions> parts;
      for (int64_t rank = 0; rank < 2; ++rank) parts.push_back(zigzag(length, rank, 2));
      if (length < 1000) {
        expect_parts_of_queries(test, DType::f64, Kernels::plain, parts, 1e-13);
      }
      expect_parts_of_queries(test, DType::f32, Kernels::fast, parts, 1e-5);
    }
  }
}

RC_GTEST_PROP(AttentionPlaces, AnyPartsOfTheQueriesGiveTheWholesResults, ()) {
  const AttentionCase test{.sequences = *rc::gen::inRange<int64_t>(1, 3),
                           .sequence = *rc::gen::inRange<int64_t>(2, 400),
                           .heads = 2,
                           .kv_heads = *rc::gen::element<int64_t>(1, 2),
                           .head_dim = 8,
                           .documents = *rc::gen::arbitrary<bool>(),
                           .cache_bytes = *rc::gen::element<int64_t>(128 << 10, 2 << 20)};
  std::vector<Positions> parts(3);
  for (int32_t position = 0; position < test.sequence; ++position) {
    parts[*rc::gen::inRange<size_t>(0, 3)].push_back(position);
  }
  std::erase_if(parts, [](const Positions& part) { return part.empty(); });
  expect_parts_of_queries(test, DType::f32, Kernels::fast, parts, 1e-5);
}

/// As a ring does: each part of the keys gives an output and a log-sum-exp, which join.
TEST(AttentionPlaces, PartsOfTheKeysJoinByTheirLogSumExps) {
  for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
    const AttentionCase test{.sequence = 290, .heads = 2, .kv_heads = 1, .head_dim = 8};
    const DType dtype = kernels == Kernels::plain ? DType::f64 : DType::f32;
    const auto inputs = attention_inputs(test, dtype);
    const AttentionResults whole = run_attention(test, dtype, kernels, 2, inputs);
    const Positions queries = range_of(0, 290);
    std::vector<double> total(whole.log_sum_exp.size()), joined(whole.output.size());
    for (const Positions& keys : {zigzag(290, 0, 2), zigzag(290, 1, 2)}) {
      const AttentionResults part = run_part(test, dtype, kernels, inputs, queries, keys);
      for (size_t row = 0; row < total.size(); ++row) {
        const double weight = std::exp(part.log_sum_exp[row] - whole.log_sum_exp[row]);
        total[row] += weight;
        const size_t head = row / 290, token = row % 290;
        for (size_t e = 0; e < 8; ++e) {
          const size_t at = token * 16 + head * 8 + e;
          joined[at] += weight * part.output[at];
        }
      }
    }
    const double tolerance = dtype == DType::f64 ? 1e-13 : 1e-5;
    expect_within(joined, whole.output, tolerance * largest_entry(whole.output), "output");
    expect_within(total, std::vector<double>(total.size(), 1.0), 10 * tolerance, "weights");
  }
}

/// As a ring's backward pass does: each part of the keys contributes to all gradients, given what
/// the parts joined to.
TEST(AttentionPlaces, PartsOfTheKeysContributeToTheGradients) {
  for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
    const AttentionCase test{
        .sequences = 2, .sequence = 290, .heads = 2, .kv_heads = 1, .head_dim = 8};
    const DType dtype = kernels == Kernels::plain ? DType::f64 : DType::f32;
    const auto inputs = attention_inputs(test, dtype);
    const AttentionResults whole = run_attention(test, dtype, kernels, 2, inputs);
    const Positions queries = range_of(0, 290);
    AttentionResults sum{{},
                         {},
                         std::vector<double>(whole.q_gradient.size()),
                         std::vector<double>(whole.k_gradient.size()),
                         std::vector<double>(whole.v_gradient.size())};
    for (const Positions& keys : {zigzag(290, 0, 2), zigzag(290, 1, 2)}) {
      Runtime runtime(test.target(2, kernels));
      Program program;
      Builder builder(program);
      const Tensor given[] = {inputs[0],
                              rows_at(inputs[1], 290, keys),
                              rows_at(inputs[2], 290, keys),
                              narrowed(whole.output, inputs[0].shape(), dtype),
                              narrowed(whole.log_sum_exp, {2, 2, 290}, dtype),
                              inputs[3]};
      std::vector<Value> values;
      for (const Tensor& tensor : given) {
        values.push_back(builder.input(fmt::format("input{}", values.size()),
                                       {tensor.shape(), tensor.dtype(), {}}));
      }
      const Value key_positions =
          builder.input("key_positions", {{2 * std::ssize(keys)}, DType::i32, {}});
      AttentionOptions options = test.options();
      options.sequence = 290;
      options.keys = std::ssize(keys);
      const auto gradients =
          attention_part_gradient(builder, values[0], values[1], values[2], {values[3], values[4]},
                                  values[5], options, {.keys = key_positions});
      for (const Value gradient : gradients) builder.output(gradient);
      ProgramRun run(program, runtime);
      for (size_t i = 0; i < values.size(); ++i) run.bind(values[i], given[i]);
      run.bind(key_positions, repeated(keys, 2));
      run.poison();
      run.run();
      add_rows(sum.q_gradient, widened(run[gradients[0]]), 2, 290, queries);
      add_rows(sum.k_gradient, widened(run[gradients[1]]), 2, 290, keys);
      add_rows(sum.v_gradient, widened(run[gradients[2]]), 2, 290, keys);
    }
    const double tolerance = dtype == DType::f64 ? 1e-13 : 1e-5;
    expect_within(sum.q_gradient, whole.q_gradient, tolerance * largest_entry(whole.q_gradient),
                  "dQ");
    expect_within(sum.k_gradient, whole.k_gradient, tolerance * largest_entry(whole.k_gradient),
                  "dK");
    expect_within(sum.v_gradient, whole.v_gradient, tolerance * largest_entry(whole.v_gradient),
                  "dV");
  }
}

TEST(AttentionPlaces, QueriesBeforeAllKeysGiveZeros) {
  for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
    const AttentionCase test{.sequence = 300, .heads = 1, .kv_heads = 1, .head_dim = 8};
    const auto inputs = attention_inputs(test, DType::f32);
    const AttentionResults part =
        run_part(test, DType::f32, kernels, inputs, range_of(0, 140), range_of(200, 300));
    for (const auto& values : {part.output, part.q_gradient, part.k_gradient, part.v_gradient}) {
      EXPECT_EQ(largest_entry(values), 0);
    }
    for (const double value : part.log_sum_exp) EXPECT_EQ(value, -HUGE_VAL);
  }
}

TEST(AttentionPlaces, PositionsThatDoNotAscendAreRefused) {
  const AttentionCase test{.sequence = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
  const auto inputs = attention_inputs(test, DType::f32);
  const auto refusal = [&](const Positions& queries, const Positions& keys) {
    try {
      run_part(test, DType::f32, Kernels::fast, inputs, queries, keys);
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({0, 1, 3}, {0, 1, 2, 3}), "");
  EXPECT_THAT(refusal({0, 2, 1}, {0, 1, 2, 3}),
              ::testing::HasSubstr("token 2 of its sequence stands at 1, after 2"));
  EXPECT_THAT(refusal({0, 1}, {1, 1, 2}), ::testing::HasSubstr("key 1 of its sequence"));
}

}  // namespace
}  // namespace tessera::testing
