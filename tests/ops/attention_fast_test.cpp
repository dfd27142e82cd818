#include <rapidcheck.h>

#include "ops/attention_cases.h"
#include "support/thread_counts.h"

namespace tessera::testing {
namespace {

/// Caches of all kinds of processors, for tiles of all sizes.
constexpr int64_t kCaches[] = {128 << 10, 512 << 10, 1 << 20, 2 << 20};

/// Shapes around the tiles' edges: 128 queries, 256 to 1024 keys.
std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> result;
  for (const int64_t sequence : {1, 2, 17, 64, 128, 130, 300}) {
    result.push_back({.sequences = 2, .sequence = sequence, .heads = 4, .kv_heads = 2});
    result.push_back({.sequences = 1,
                      .sequence = sequence,
                      .heads = 2,
                      .kv_heads = 2,
                      .head_dim = 24,
                      .documents = true});
  }
  for (const int64_t head_dim : {32, 64, 128}) {
    result.push_back({.sequence = 150, .heads = 4, .kv_heads = 1, .head_dim = head_dim});
  }
  result.push_back({.sequence = 1100, .heads = 2, .kv_heads = 1});
  result.push_back({.sequence = 1024, .documents = true});
  result.push_back({.sequences = 2, .sequence = 900, .documents = true});
  result.push_back({.sequence = 2178});
  result.push_back({.sequence = 2300, .documents = true});
  return result;
}

/// The case in tiles of all sizes, of which only long sequences have more than one.
std::vector<AttentionCase> in_all_tiles(AttentionCase test) {
  if (test.sequence <= 256) return {test};
  std::vector<AttentionCase> result;
  for (const int64_t cache_bytes : kCaches) {
    test.cache_bytes = cache_bytes;
    result.push_back(test);
  }
  return result;
}

TEST(AttentionFast, TilesFitTheSecondLevelCache) {
  for (const auto& [bytes, forward, backward] :
       {std::tuple(48 << 10, 256, 256), std::tuple(256 << 10, 256, 256),
        std::tuple(512 << 10, 512, 256), std::tuple(1 << 20, 1024, 512),
        std::tuple(2 << 20, 1024, 1024), std::tuple(0, 1024, 512)}) {
    const AttentionTiles tiles(Target{.caches = {.second_level = bytes}});
    EXPECT_EQ(tiles.forward_keys, forward) << bytes;
    EXPECT_EQ(tiles.backward_keys, backward) << bytes;
  }
}

TEST(AttentionFast, FloatMatchesPlain) {
  for (const AttentionCase& test : cases()) {
    const auto inputs = attention_inputs(test, DType::f32);
    const auto plain = run_attention(test, DType::f32, Kernels::plain, 2, inputs);
    for (const AttentionCase& tiled : in_all_tiles(test)) {
      expect_close(run_attention(tiled, DType::f32, Kernels::fast, 2, inputs), plain, 1e-5,
                   tiled.text());
    }
  }
}

/// Scores that are computed where tiles are 128 queries by 128 keys and one is computed if any
/// query of it attends any key of it: found by asking every pair.
double attended_scores(const AttentionCase& test) {
  constexpr int64_t kSide = 128;
  const std::vector<int32_t> starts = test.document_starts();
  double scores = 0;
  for (int64_t sequence = 0; sequence < test.sequences; ++sequence) {
    for (int64_t query = 0; query < test.sequence; query += kSide) {
      const int64_t query_end = std::min(query + kSide, test.sequence);
      for (int64_t key = 0; key < test.sequence; key += kSide) {
        const int64_t key_end = std::min(key + kSide, test.sequence);
        bool attended = false;
        for (int64_t i = query; i < query_end; ++i) {
          const int64_t start =
              test.documents ? starts[static_cast<size_t>(sequence * test.sequence + i)] : 0;
          for (int64_t j = key; j < key_end; ++j) attended = attended || (start <= j && j <= i);
        }
        if (attended) scores += static_cast<double>((query_end - query) * (key_end - key));
      }
    }
  }
  return scores * static_cast<double>(test.heads);
}

/// Two products forward and five backward, on the tiles that the masks leave and on no others.
TEST(AttentionFast, MaskedTilesAreNotMultiplied) {
  for (AttentionCase test : {AttentionCase{.sequences = 2, .sequence = 2048, .heads = 2},
                             AttentionCase{.sequences = 2, .sequence = 1300}}) {
    double causal = 0;
    for (const bool documents : {false, true}) {
      test.documents = documents;
      const double scores = attended_scores(test);
      if (documents) {
        ASSERT_LT(scores, 0.7 * causal) << "the documents leave little out";
      } else {
        causal = scores;
      }
      const double product = 2 * scores * static_cast<double>(test.head_dim);
      for (const int64_t cache_bytes : kCaches) {
        const DType dtype = cache_bytes < (1 << 20) ? DType::f32 : DType::bf16;
        test.cache_bytes = cache_bytes;
        const auto inputs = attention_inputs(test, dtype);
        const auto found = run_attention(test, dtype, Kernels::fast, 2, inputs);
        EXPECT_DOUBLE_EQ(found.forward_flops, 2 * product) << test.text();
        EXPECT_DOUBLE_EQ(found.backward_flops, 5 * product) << test.text();
      }
    }
  }
}

/// Scores of several hundred: the running maximum must keep every exponential in range.
TEST(AttentionFast, LargeScoresMatchPlain) {
  const AttentionCase test{.sequence = 700, .heads = 1, .kv_heads = 1, .deviation = 12};
  const auto inputs = attention_inputs(test, DType::f32);
  // A score of 600 is known to 600 · 2^-24 · sqrt(16) or so, and its exponential to as much.
  expect_close(run_attention(test, DType::f32, Kernels::fast, 2, inputs),
               run_attention(test, DType::f32, Kernels::plain, 2, inputs), 3e-4, test.text());
}

TEST(AttentionFast, ThreadsDoNotChangeTheBits) {
  for (const AttentionCase& test :
       {AttentionCase{.sequence = 1100, .heads = 2, .kv_heads = 1},
        AttentionCase{.sequences = 3, .sequence = 300, .heads = 4, .kv_heads = 2},
        AttentionCase{.sequence = 150, .heads = 4, .kv_heads = 2, .head_dim = 64},
        AttentionCase{.sequence = 900, .heads = 2, .kv_heads = 2, .documents = true},
        // Heavy and light sequences by turns: threads overtake one another.
        AttentionCase{.sequences = 8, .sequence = 600, .documents = true}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(test.text());
      const auto inputs = attention_inputs(test, dtype);
      const auto bits = [&](Kernels kernels, int threads) {
        const auto found = run_attention(test, dtype, kernels, threads, inputs);
        return bits_of(found.output, found.log_sum_exp, found.q_gradient, found.k_gradient,
                       found.v_gradient);
      };
      expect_same_bits_on_any_threads(bits);
      EXPECT_TRUE(bits(Kernels::plain, 1) == bits(Kernels::plain, 3));
    }
  }
}

/// Attention in f64, with a bound on the error of each result that bf16 may make: probabilities,
/// the gradients of the scores, the output and the results are each rounded once, by at most
/// u = 2^-8 of their size.
struct Bounded {
  AttentionResults value;
  AttentionResults bound;
};

Bounded bounded_reference(const AttentionCase& test, std::span<const Tensor> inputs) {
  constexpr double u = 0x1p-8;
  const auto q = widened(inputs[0]), k = widened(inputs[1]);
  const auto v = widened(inputs[2]), output_gradient = widened(inputs[3]);
  const auto starts = test.document_starts();
  const int64_t d = test.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  Bounded result;
  for (AttentionResults* part : {&result.value, &result.bound}) {
    part->output.assign(q.size(), 0);
    part->q_gradient.assign(q.size(), 0);
    part->k_gradient.assign(k.size(), 0);
    part->v_gradient.assign(k.size(), 0);
  }
  auto& [value, bound] = result;
  for (int64_t row = 0; row < test.tokens() * test.heads; ++row) {
    const int64_t token = row / test.heads, head = row % test.heads;
    const int64_t i = token % test.sequence, first_token = token - i;
    const int64_t first = test.documents ? starts[static_cast<size_t>(token)] : 0;
    const auto query = static_cast<size_t>(row * d);
    const auto key = [&](int64_t j) {
      return static_cast<size_t>(
          ((first_token + j) * test.kv_heads + head / (test.heads / test.kv_heads)) * d);
    };
    const auto dot = [&](const std::vector<double>& a, size_t at, const std::vector<double>& b,
                         size_t bt) {
      double sum = 0;
      for (size_t e = 0; e < static_cast<size_t>(d); ++e) sum += a[at + e] * b[bt + e];
      return sum;
    };
    std::vector<double> p;
    double total = 0;
    for (int64_t j = first; j <= i; ++j) {
      p.push_back(std::exp(scale * dot(q, query, k, key(j))));
      total += p.back();
    }
    double delta_bound = 0;
    for (size_t e = 0; e < static_cast<size_t>(d); ++e) {
      double& sum = value.output[query + e];
      double sizes = 0;
      for (int64_t j = first; j <= i; ++j) {
        const double term = p[static_cast<size_t>(j - first)] / total * v[key(j) + e];
        sum += term;
        sizes += std::abs(term);
      }
      bound.output[query + e] = u * (sizes + std::abs(sum));
      delta_bound += std::abs(output_gradient[query + e]) * bound.output[query + e];
    }
    const double delta = dot(output_gradient, query, value.output, query);
    for (int64_t j = first; j <= i; ++j) {
      const double probability = p[static_cast<size_t>(j - first)] / total;
      const double score_gradient = probability * (dot(output_gradient, query, v, key(j)) - delta);
      const double score_bound = u * std::abs(score_gradient) + probability * delta_bound;
      for (size_t e = 0; e < static_cast<size_t>(d); ++e) {
        value.q_gradient[query + e] += scale * score_gradient * k[key(j) + e];
        bound.q_gradient[query + e] += scale * score_bound * std::abs(k[key(j) + e]);
        value.k_gradient[key(j) + e] += scale * score_gradient * q[query + e];
        bound.k_gradient[key(j) + e] += scale * score_bound * std::abs(q[query + e]);
        value.v_gradient[key(j) + e] += probability * output_gradient[query + e];
        bound.v_gradient[key(j) + e] += u * probability * std::abs(output_gradient[query + e]);
      }
    }
  }
  const auto round = [](const std::vector<double>& values, std::vector<double>& bounds) {
    for (size_t at = 0; at < values.size(); ++at) bounds[at] += u * std::abs(values[at]);
  };
  round(value.q_gradient, bound.q_gradient);
  round(value.k_gradient, bound.k_gradient);
  round(value.v_gradient, bound.v_gradient);
  return result;
}

/// 5 % of slack for products of roundings, 1e-5 for the sums in f32.
void expect_bounded(const std::vector<double>& found, const std::vector<double>& expected,
                    const std::vector<double>& bound, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t at = 0; at < found.size(); ++at) {
    ASSERT_NEAR(found[at], expected[at], 1.05 * bound[at] + 1e-5) << what << ", element " << at;
  }
}

void expect_bfloat16_within_rounding(const AttentionCase& test) {
  const auto inputs = attention_inputs(test, DType::bf16);
  const Bounded reference = bounded_reference(test, inputs);
  const auto& [value, bound] = reference;
  for (const AttentionCase& tiled : in_all_tiles(test)) {
    const auto found = run_attention(tiled, DType::bf16, Kernels::fast, 2, inputs);
    expect_bounded(found.output, value.output, bound.output, tiled.text() + ": output");
    expect_bounded(found.q_gradient, value.q_gradient, bound.q_gradient,
                   tiled.text() + ": gradient of q");
    expect_bounded(found.k_gradient, value.k_gradient, bound.k_gradient,
                   tiled.text() + ": gradient of k");
    expect_bounded(found.v_gradient, value.v_gradient, bound.v_gradient,
                   tiled.text() + ": gradient of v");
  }
}

TEST(AttentionFast, BFloat16IsWithinItsRounding) {
  for (const AttentionCase& test : cases()) expect_bfloat16_within_rounding(test);
}

TEST(AttentionFast, RandomShapes) {
  const bool passed = rc::check("fast attention of random shapes and documents", [] {
    AttentionCase test;
    test.kv_heads = *rc::gen::inRange(1, 3);
    test.heads = test.kv_heads * *rc::gen::element(1, 2, 4);
    test.head_dim = *rc::gen::element(8, 16, 24, 40);
    test.sequences = *rc::gen::inRange(1, 3);
    test.sequence = *rc::gen::inRange(1, 200);
    test.documents = *rc::gen::arbitrary<bool>();
    RC_LOG() << test.text();
    const auto inputs = attention_inputs(test, DType::f32);
    expect_close(run_attention(test, DType::f32, Kernels::fast, 2, inputs),
                 run_attention(test, DType::f32, Kernels::plain, 2, inputs), 1e-5, test.text());
    expect_bfloat16_within_rounding(test);
    RC_ASSERT(!::testing::Test::HasFailure());
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace tessera::testing
