// Compressed convolutional attention of the next tokens of a sequence.

#include <cstring>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/cca/delay.h"
#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca/mean_skip.h"
#include "ops/cca_cases.h"
#include "support/emulated.h"

namespace tessera {
namespace {

using testing::Emulation;

/// Sizes of the queries, keys and values of one sequence.
struct DecodedCase {
  int64_t groups = 2;
  int64_t heads = 2;  ///< query heads of a key head
  int64_t head_dim = 4;
  int64_t delayed = 3;  ///< columns

  int64_t queries() const { return groups * heads * head_dim; }
  int64_t keys() const { return groups * head_dim; }
};

/// The rows that each token brings.
struct TokenRows {
  enum Name : size_t { query, key, current, delayed, count };
};

/// The weights.
struct DecodedWeights {
  enum Name : size_t {
    query_taps,
    query_taps_bias,
    key_taps,
    key_taps_bias,
    query_groups,
    key_groups,
    query_bias,
    key_bias,
    temperature,
    count
  };
};

/// A sequence that is continued in pieces, with states that begin as NaN.
class DecodedRun {
 public:
  DecodedRun(const DecodedCase& test, DType dtype, Kernels kernels,
             const std::optional<Emulation>& emulation = {})
      : test_(test),
        dtype_(dtype),
        runtime_(testing::make_runtime(host_target(2, kernels), emulation)) {
    const int64_t dim = test.head_dim;
    using Of = DecodedWeights;
    const Shape shapes[Of::count] = {{test.queries(), 2},
                                     {test.queries()},
                                     {test.keys(), 2},
                                     {test.keys()},
                                     {test.queries(), dim, 2},
                                     {test.keys(), dim, 2},
                                     {test.queries()},
                                     {test.keys()},
                                     {test.groups}};
    for (size_t i = 0; i < Of::count; ++i) {
      const bool narrow = i == Of::query_groups || i == Of::key_groups;
      weights_.push_back(testing::random_tensor(
          shapes[i], narrow ? dtype : accumulation_dtype(dtype), fmt::format("weight{}", i)));
    }
    for (const Shape& shape :
         {Shape{2, test.queries()}, Shape{2, test.keys()}, Shape{1, test.delayed}}) {
      states_.emplace_back(shape, dtype);
      std::memset(states_.back().raw(), 0xff, static_cast<size_t>(states_.back().bytes()));
    }
  }

  /// Random rows of `tokens` tokens.
  std::vector<Tensor> random_rows(int64_t tokens, const std::string& name) const {
    const int64_t widths[TokenRows::count] = {test_.queries(), test_.keys(), test_.head_dim,
                                              test_.delayed};
    std::vector<Tensor> rows;
    for (size_t i = 0; i < TokenRows::count; ++i) {
      rows.push_back(
          testing::random_tensor({tokens, widths[i]}, dtype_, fmt::format("{}{}", name, i)));
    }
    return rows;
  }

  /// Queries, keys and values of rows [position, position + tokens), in f64: those of the whole
  /// sequence, or if `continues`, by the states.
  std::vector<std::vector<double>> feed(std::span<const Tensor> rows, int64_t position,
                                        int64_t tokens, bool continues) {
    Program program;
    Builder builder(program);
    std::vector<Value> in, weights, states;
    for (const Tensor& of : rows) {
      in.push_back(builder.input(fmt::format("row{}", in.size()),
                                 {of.shape().with_dim(0, tokens), dtype_, {}}));
    }
    for (const Tensor& of : weights_) {
      weights.push_back(
          builder.parameter(fmt::format("weight{}", weights.size()), {of.shape(), of.dtype(), {}}));
    }
    for (const Tensor& of : states_) {
      states.push_back(
          builder.state(fmt::format("state{}", states.size()), {of.shape(), dtype_, {}}));
    }
    const Value position_input = builder.input("position", {{1}, DType::i32, {}});
    const std::vector<Value> outputs =
        write(builder, in, weights, states, position_input, tokens, continues);
    for (const Value output : outputs) builder.output(output);
    testing::ProgramRun run(program, runtime_);
    for (size_t i = 0; i < in.size(); ++i) {
      run.bind(in[i], rows[i].slice(position, position + tokens));
    }
    for (size_t i = 0; i < weights.size(); ++i) run.bind(weights[i], weights_[i]);
    for (size_t i = 0; i < states.size(); ++i) run.bind(states[i], states_[i]);
    auto index = static_cast<int32_t>(position);
    run.bind(position_input, Tensor::wrap(&index, {1}, DType::i32));
    run.poison();
    run.forward();
    run.read_bound();
    std::vector<std::vector<double>> results;
    for (const Value output : outputs) results.push_back(testing::as_doubles(run[output]));
    return results;
  }

  std::vector<std::vector<double>> feed_all(std::span<const Tensor> rows,
                                            std::span<const int64_t> pieces) {
    std::vector<std::vector<double>> results(5);
    int64_t position = 0;
    for (const int64_t tokens : pieces) {
      const auto piece = feed(rows, position, tokens, true);
      for (size_t i = 0; i < piece.size(); ++i) {
        results[i].insert(results[i].end(), piece[i].begin(), piece[i].end());
      }
      position += tokens;
    }
    return results;
  }

  const Tensor& state(size_t number) const { return states_[number]; }

 private:
  std::vector<Value> write(Builder& builder, std::span<const Value> in,
                           std::span<const Value> weights, std::span<const Value> states,
                           Value position_input, int64_t tokens, bool continues) const {
    using Row = TokenRows;
    using Of = DecodedWeights;
    const auto taps = [&](Value x, Of::Name weight, Of::Name bias, Value last_rows) {
      return continues
                 ? cached_depthwise_taps(builder, x, weights[weight], weights[bias], last_rows,
                                         position_input)
                 : depthwise_taps(builder, x, weights[weight], weights[bias], {.sequence = tokens});
    };
    const QueryAndKey pairs{taps(in[Row::query], Of::query_taps, Of::query_taps_bias, states[0]),
                            taps(in[Row::key], Of::key_taps, Of::key_taps_bias, states[1])};
    const QueryAndKey convolved{
        grouped_convolution(builder, pairs.query, weights[Of::query_groups],
                            test_.groups * test_.heads),
        grouped_convolution(builder, pairs.key, weights[Of::key_groups], test_.groups)};
    const QueryAndKey result =
        mean_skip_norm(builder, {in[Row::query], in[Row::key]}, convolved,
                       {weights[Of::query_bias], weights[Of::key_bias]}, weights[Of::temperature],
                       {.head_dim = test_.head_dim});
    const Value values =
        continues ? cached_join_delayed(builder, in[Row::current], in[Row::delayed], states[2],
                                        position_input)
                  : join_delayed(builder, in[Row::current], in[Row::delayed], {.sequence = tokens});
    return {pairs.query, pairs.key, values, result.query, result.key};
  }

  DecodedCase test_;
  DType dtype_;
  Runtime runtime_;
  std::vector<Tensor> weights_;
  std::vector<Tensor> states_;
};

DecodedCase random_decoded() {
  return {.groups = *rc::gen::inRange<int64_t>(1, 3),
          .heads = *rc::gen::inRange<int64_t>(1, 4),
          .head_dim = *rc::gen::element<int64_t>(3, 8, 16),
          .delayed = *rc::gen::element<int64_t>(1, 5, 16)};
}

/// Pieces of a sequence, mostly of a token or two.
std::vector<int64_t> random_pieces() {
  const auto piece = rc::gen::element<int64_t>(1, 1, 1, 2, 2, 3, 7);
  std::vector<int64_t> pieces = *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(piece));
  if (pieces.size() > 6) pieces.resize(6);
  return pieces;
}

/// Values are the same bits, and so are the fast kernels' taps. Queries and keys are close:
/// products of other numbers of rows may be summed in another order.
void expect_equal_whole(const std::vector<std::vector<double>>& pieces,
                        const std::vector<std::vector<double>>& whole,
                        const testing::Tolerance& tolerance, bool same_taps) {
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool same = i == 2 || (i < 2 && same_taps);
    testing::expect_close(pieces[i], whole[i], same ? testing::Tolerance{} : tolerance,
                          fmt::format("output {}", i));
  }
}

testing::Tolerance tolerance_of(DType dtype) {
  if (dtype == DType::f64) return {0, 1e-13};
  return dtype == DType::bf16 ? testing::Tolerance{2 * testing::kBFloat16Rounding, 2e-2}
                              : testing::Tolerance{0, 1e-5};
}

RC_GTEST_PROP(CachedCompressedAttention, AnyPiecesEqualTheWhole, ()) {
  const DecodedCase test = random_decoded();
  const auto pieces = random_pieces();
  const int64_t tokens = std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Kernels kernels = *rc::gen::element(Kernels::plain, Kernels::fast);
    DecodedRun run(test, dtype, kernels);
    const auto rows = run.random_rows(tokens, "rows");
    const auto whole = run.feed(rows, 0, tokens, false);
    expect_equal_whole(run.feed_all(rows, pieces), whole, tolerance_of(dtype),
                       kernels == Kernels::fast && dtype != DType::f64);
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

/// A sequence begins at position 0, whatever the states still have of the one before.
TEST(CachedCompressedAttention, BeginsANewSequenceWithoutTheOldOne) {
  const std::vector<int64_t> ones(5, 1);
  for (const DType dtype : {DType::f64, DType::bf16}) {
    DecodedRun run({}, dtype, Kernels::fast);
    run.feed_all(run.random_rows(5, "old"), ones);
    const auto rows = run.random_rows(5, "new");
    const auto whole = run.feed(rows, 0, 5, false);
    expect_equal_whole(run.feed_all(rows, ones), whole, tolerance_of(dtype), dtype != DType::f64);
  }
}

TEST(CachedCompressedAttention, KeepsTheRowsOfTheLastTwoTokens) {
  DecodedRun run({}, DType::f32, Kernels::fast);
  const auto rows = run.random_rows(6, "rows");
  int64_t position = 0;
  for (const int64_t tokens : {1, 1, 3, 1}) {
    run.feed(rows, position, tokens, true);
    position += tokens;
    if (position >= 2) {
      EXPECT_EQ(testing::as_doubles(run.state(0)),
                testing::as_doubles(rows[TokenRows::query].slice(position - 2, position)));
    }
    EXPECT_EQ(testing::as_doubles(run.state(2)),
              testing::as_doubles(rows[TokenRows::delayed].slice(position - 1, position)));
  }
}

RC_GTEST_PROP(CachedCompressedAttention, TheDevicesKernelsAgree, ()) {
  const DecodedCase test = random_decoded();
  auto pieces = random_pieces();
  pieces.resize(std::min<size_t>(pieces.size(), 3));
  const int64_t tokens = std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  DecodedRun plain(test, dtype, Kernels::plain);
  const auto rows = plain.random_rows(tokens, "rows");
  const auto whole = plain.feed(rows, 0, tokens, false);
  testing::expect_equal_bits_on_devices(
      testing::any_lanes(),
      [&](const Emulation& device) {
        testing::RunResult result;
        result.outputs = DecodedRun(test, dtype, Kernels::fast, device).feed_all(rows, pieces);
        return result;
      },
      [&](const testing::RunResult& result) {
        for (size_t i = 0; i < whole.size(); ++i) {
          testing::expect_close(result.outputs[i], whole[i], tolerance_of(dtype),
                                fmt::format("output {}", i));
        }
      });
  RC_ASSERT(!::testing::Test::HasFailure());
}

}  // namespace
}  // namespace tessera
