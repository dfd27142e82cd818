#include "ops/update/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/gemm/gemm_plan.h"
#include "ops/gemm/symmetric_product.h"
#include "ops/update/muon_measures.h"
#include "ops/update/muon_passes.h"
#include "program/view.h"
#include "support/emulated.h"
#include "support/relative_difference.h"
#include "support/thread_counts.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

using testing::RunInput;
using testing::RunOptions;

std::vector<Value> five_steps(Builder& builder, std::span<const Value> values) {
  return newton_schulz(builder, values, 5);
}

RunOptions without_backward(DType dtype, int threads = 2) {
  return {.dtype = dtype, .threads = threads, .backward = false};
}

/// The singular values of a matrix [rows, columns], rows <= columns: the roots of the eigenvalues
/// of its Gram matrix, by Jacobi's rotations.
std::vector<double> singular_values_of(const std::vector<double>& matrix, size_t rows,
                                       size_t columns) {
  std::vector<double> gram(rows * rows);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < rows; ++k) {
      for (size_t j = 0; j < columns; ++j) {
        gram[i * rows + k] += matrix[i * columns + j] * matrix[k * columns + j];
      }
    }
  }
  const auto at = [&](size_t i, size_t j) -> double& { return gram[i * rows + j]; };
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (size_t p = 0; p + 1 < rows; ++p) {
      for (size_t q = p + 1; q < rows; ++q) {
        if (std::abs(at(p, q)) < 1e-15) continue;
        const double angle = 0.5 * std::atan2(2 * at(p, q), at(q, q) - at(p, p));
        const double c = std::cos(angle), s = std::sin(angle);
        for (size_t k = 0; k < rows; ++k) {
          const double kp = at(k, p), kq = at(k, q);
          at(k, p) = c * kp - s * kq;
          at(k, q) = s * kp + c * kq;
        }
        for (size_t k = 0; k < rows; ++k) {
          const double pk = at(p, k), qk = at(q, k);
          at(p, k) = c * pk - s * qk;
          at(q, k) = s * pk + c * qk;
        }
      }
    }
  }
  std::vector<double> values;
  for (size_t i = 0; i < rows; ++i) values.push_back(std::sqrt(std::max(at(i, i), 0.0)));
  return values;
}

TEST(NewtonSchulz, BringsSingularValuesIntoThePublishedBand) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{48, 96}, {30, 200}}) {
      const auto result =
          run_program(five_steps, {RunInput{{rows, columns}}}, without_backward(dtype));
      const auto values = singular_values_of(result.outputs[0], static_cast<size_t>(rows),
                                             static_cast<size_t>(columns));
      const auto [least, most] = std::ranges::minmax(values);
      EXPECT_GT(least, 0.67) << dtype_name(dtype) << " [" << rows << ", " << columns << "]";
      EXPECT_LT(most, 1.21) << dtype_name(dtype) << " [" << rows << ", " << columns << "]";
    }
  }
}

/// What Newton-Schulz makes of a matrix on one thread.
std::vector<double> orthogonalised(const Tensor& given, Kernels kernels = Kernels::fast,
                                   const std::optional<testing::Emulation>& emulation = {}) {
  Program program;
  Builder builder(program);
  const Value matrix = builder.input("matrix", {given.shape(), given.dtype(), {}});
  const Value result = five_steps(builder, {{matrix}}).front();
  builder.output(result);
  Runtime runtime = testing::make_runtime(host_target(1, kernels), emulation);
  testing::ProgramRun run(program, runtime);
  run.bind(matrix, given);
  run.run();
  return testing::as_doubles(run[result]);
}

/// The orthogonal factors stay: X of U diag(s) Vᵀ is U diag(f(s)) Vᵀ, with f five times the
/// polynomial. Here U and V are the identity.
TEST(NewtonSchulz, AppliesThePolynomialToSingularValues) {
  const std::vector<double> given{0.9, 0.4, 0.1, 0.02};
  const double norm = std::sqrt(std::inner_product(given.begin(), given.end(), given.begin(), 0.0));
  for (const bool tall : {false, true}) {
    const Shape shape = tall ? Shape{6, 4} : Shape{4, 6};
    const Tensor diagonal(shape, DType::f64);
    diagonal.fill_zero();
    for (int64_t i = 0; i < 4; ++i) {
      diagonal.data<double>()[i * shape[1] + i] = given[static_cast<size_t>(i)];
    }
    const std::vector<double> found = orthogonalised(diagonal);
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        double expected = i == j ? given[static_cast<size_t>(i)] / norm : 0;
        for (int step = 0; step < 5; ++step) {
          expected =
              3.4445 * expected - 4.775 * std::pow(expected, 3) + 2.0315 * std::pow(expected, 5);
        }
        EXPECT_NEAR(found[static_cast<size_t>(i * shape[1] + j)], expected, 1e-12);
      }
    }
  }
}

/// A matrix times 2^exponent, rounded to a type.
Tensor times_power_of_two(const Tensor& matrix, int exponent, DType dtype) {
  const Tensor product(matrix.shape(), dtype);
  const std::vector<double> numbers = testing::as_doubles(matrix);
  dispatch_floating(dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < numbers.size(); ++i) {
      product.data<T>()[i] =
          static_cast<T>(static_cast<Compute<T>>(std::ldexp(numbers[i], exponent)));
    }
  });
  return product;
}

/// Times a power of two a matrix gives the same bits, also where its norm is above the largest or
/// its factor above the largest number of f32. Denormal numbers have fewer bits: they give what
/// their values give in f64.
TEST(NewtonSchulz, ResultsDoNotDependOnTheSizeOfAMatrix) {
  for (const Shape& shape : {Shape{12, 20}, Shape{20, 12}}) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(dtype), shape.text()));
      const Tensor given = testing::random_tensor(shape, dtype, "matrix");
      const auto expect_same = [&](const auto& run_on) {
        const std::vector<double> expected = run_on(given);
        EXPECT_THAT(expected, ::testing::Contains(::testing::Gt(0.1)));
        std::vector<int> exponents{-100, -20, 50, 124};
        if (dtype == DType::f64) exponents.insert(exponents.end(), {-460, 490});
        for (const int exponent : exponents) {
          EXPECT_EQ(run_on(times_power_of_two(given, exponent, dtype)), expected) << exponent;
        }
        if (dtype == DType::f64) return;
        const Tensor denormal = times_power_of_two(given, -134, dtype);
        const auto of_values = orthogonalised(times_power_of_two(denormal, 134, DType::f64));
        EXPECT_LE(testing::relative_difference(of_values, run_on(denormal)),
                  dtype == DType::f32 ? 1e-5 : 0.1);
        const Tensor zeros = times_power_of_two(given, -200, dtype);
        EXPECT_THAT(run_on(zeros), ::testing::Each(0.0));
      };
      for (const Kernels kernels : {Kernels::fast, Kernels::plain}) {
        expect_same([&](const Tensor& matrix) { return orthogonalised(matrix, kernels); });
      }
      if (dtype == DType::f64 || shape[0] > shape[1]) continue;
      for (const testing::Emulation& device : testing::every_device()) {
        expect_same(
            [&](const Tensor& matrix) { return orthogonalised(matrix, Kernels::plain, device); });
      }
    }
  }
}

TEST(NewtonSchulz, TakesEachExpertForItself) {
  constexpr int64_t kExperts = 5, kRows = 12, kColumns = 9;
  const auto together = run_program(five_steps, {RunInput{{kExperts, kRows, kColumns}}},
                                    without_backward(DType::f64));
  const auto one_by_one = [](Builder& builder, std::span<const Value> values) {
    std::vector<Value> results;
    for (int64_t e = 0; e < kExperts; ++e) {
      const Value part = view(builder, values[0], e * kRows * kColumns, {kRows, kColumns});
      results.push_back(newton_schulz(builder, {{part}}, 5).front());
    }
    return results;
  };
  const auto apart = run_program(one_by_one, {RunInput{{kExperts, kRows, kColumns}}},
                                 without_backward(DType::f64));
  std::vector<double> joined;
  for (const auto& part : apart.outputs) joined.insert(joined.end(), part.begin(), part.end());
  EXPECT_EQ(together.outputs[0], joined);
}

/// The results of the fast and of the plain kernel.
struct FastAndPlain {
  explicit FastAndPlain(const std::vector<RunInput>& inputs) {
    RunOptions options = without_backward(DType::f32);
    fast = run_program(five_steps, inputs, options).outputs;
    options.kernels = Kernels::plain;
    plain = run_program(five_steps, inputs, options).outputs;
  }
  std::vector<std::vector<double>> fast, plain;
};

RC_GTEST_PROP(NewtonSchulz, FastAgreesWithPlain, ()) {
  const auto side = [] { return *rc::gen::inRange<int64_t>(1, 70); };
  const int64_t rows = side(), columns = side() + 70;
  const bool tall = *rc::gen::arbitrary<bool>();
  const FastAndPlain both({{tall ? Shape{columns, rows} : Shape{rows, columns}}, {{3, rows, 40}}});
  // Rounding grows by up to 3.4^5 for singular values near 0, which rows = 40 may have.
  testing::expect_close(both.fast[0], both.plain[0], {0, 1e-4}, "wide");
  testing::expect_close(both.fast[1], both.plain[1], {0, 1e-2}, "experts");
}

/// Matrices whose symmetric products are cut into blocks.
TEST(NewtonSchulz, BlocksAgreeWithPlain) {
  const FastAndPlain both({{{300, 420}}, {{330, 260}}});
  testing::expect_close(both.fast[0], both.plain[0], {0, 1e-4}, "wide");
  testing::expect_close(both.fast[1], both.plain[1], {0, 1e-4}, "tall");
}

/// Whether products of n rows are cut into blocks here, and so are symmetric bit for bit.
bool is_cut(const Target& target, int64_t n, DType dtype) {
  const bool tiles = dtype == DType::bf16 && target.instructions == MatrixInstructions::amx;
  return target.kernels == Kernels::fast && n >= (tiles ? 1024 : 256);
}

/// A Aᵀ, and the same with entries that are computed from those.
template <typename T>
void expect_symmetric_product(int64_t n, int64_t k, Kernels kernels, int threads) {
  SCOPED_TRACE(fmt::format("{} of [{}, {}], {} threads", dtype_name(dtype_of<T>), n, k, threads));
  const Tensor a = testing::random_tensor({n, k}, dtype_of<T>, "a");
  const Tensor c({n, n}, dtype_of<T>);
  const Tensor changed({n, n}, dtype_of<T>);
  Runtime runtime(host_target(threads, kernels));
  const SymmetricSize size{n, k, dtype_of<T>, threads};
  const Tensor workspace({SymmetricProduct::workspace_bytes(runtime.target(), size)}, DType::u8);
  const SymmetricProduct product(runtime, size);
  const T* const entries = c.data<T>();
  product.run(a.data<T>(), c.data<T>(), workspace.raw());
  const auto change = [=](const T* of, int64_t i, int64_t j) {
    return static_cast<T>(2 * static_cast<Compute<T>>(of[i * n + j]) + Compute<T>(i == j ? 3 : 0));
  };
  T* const changes = changed.data<T>();
  product.run(a.data<T>(), changes, workspace.raw(),
              [=](int64_t i, int64_t j) { return change(changes, i, j); });
  const auto at = [&](int64_t i, int64_t l) {
    return static_cast<double>(static_cast<Compute<T>>(a.data<T>()[i * k + l]));
  };
  const auto number = [](T value) { return static_cast<double>(static_cast<Compute<T>>(value)); };
  const bool cut = is_cut(runtime.target(), n, dtype_of<T>);
  const double rounding = dtype_of<T> == DType::bf16 ? 1.0 / 256 : 0;  // of the result
  for (int64_t i = 0; i < n; i += 13) {
    for (int64_t j = 0; j < n; ++j) {
      double expected = 0, size_of_terms = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double term = at(i, l) * at(j, l);
        expected += term;
        size_of_terms += std::abs(term);
      }
      const double found = number(entries[i * n + j]);
      ASSERT_NEAR(found, expected, 1e-6 * size_of_terms + rounding * std::abs(expected))
          << i << ", " << j;
      ASSERT_EQ(number(changes[i * n + j]), number(change(entries, i, j))) << i << ", " << j;
      if (cut) {
        ASSERT_EQ(found, number(entries[j * n + i])) << i << ", " << j;
      }
    }
  }
}

/// As a whole, by blocks of one thread each, and by blocks of all threads.
TEST(SymmetricProduct, IsTheFullProductAndSymmetric) {
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{7, 3}, {200, 70}, {300, 21}, {520, 150}, {1100, 33}}) {
    expect_symmetric_product<float>(n, k, Kernels::plain, 2);
    for (const int threads : {1, 2, 16}) {
      expect_symmetric_product<float>(n, k, Kernels::fast, threads);
      if (n < 1000 || threads == 2) {
        expect_symmetric_product<BFloat16>(n, k, Kernels::fast, threads);
      }
    }
  }
}

/// Matrices whose products are cut into blocks, several and one. Sums over 700 numbers may have
/// other bits on eight threads (docs/architecture.md, Numbers).
TEST(NewtonSchulz, BlocksHaveTheSameBitsWithAnyNumberOfThreads) {
  if (!rows_keep_their_bits(host_target(1))) GTEST_SKIP() << testing::kBitsChange;
  const std::vector<RunInput> inputs{{{520, 600}}, {{5, 260, 300}}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::vector<double>> one;
    for (const int threads : {1, 2, 3, 8}) {
      RunOptions options = without_backward(dtype);
      options.threads = threads;
      const auto outputs = run_program(five_steps, inputs, options).outputs;
      if (threads == 1) one = outputs;
      EXPECT_TRUE(outputs == one) << dtype_name(dtype) << ", " << threads << " threads";
    }
  }
}

/// The same matrices beside others, of which ranks may have any number, have the same bits on every
/// processor.
TEST(NewtonSchulz, BitsDoNotDependOnHowManyMatricesThereAre) {
  RunOptions options = without_backward(DType::f32);
  options.threads = 2;
  const auto two = run_program(five_steps, {RunInput{{2, 260, 300}}}, options).outputs[0];
  const auto three = run_program(five_steps, {RunInput{{3, 260, 300}}}, options).outputs[0];
  ASSERT_EQ(two.size() * 3, three.size() * 2);
  // The inputs are numbers of a sequence, so the first two matrices are the same.
  EXPECT_TRUE(std::equal(two.begin(), two.end(), three.begin()));
}

RC_GTEST_PROP(NewtonSchulz, DevicesAgreeWithPlain, ()) {
  const int64_t rows = *rc::gen::inRange<int64_t>(1, 20);
  const int64_t columns = *rc::gen::inRange<int64_t>(24, 60);
  const bool tall = *rc::gen::arbitrary<bool>();
  const std::vector<RunInput> inputs{{tall ? Shape{columns, rows} : Shape{rows, columns}},
                                     {{3, rows, columns + 1}}};
  testing::expect_device_agrees(
      [](Builder& builder, std::span<const Value> values) {
        return newton_schulz(builder, values, 2);
      },
      inputs, {.dtype = DType::f32, .backward = false});
}

RC_GTEST_PROP(MuonMeasures, DevicesAgreeWithPlain, ()) {
  const int64_t rows = *rc::gen::inRange<int64_t>(1, 100);
  const int64_t columns = *rc::gen::inRange<int64_t>(1, 100);
  const std::vector<RunInput> inputs{{{rows, columns}}, {{columns, rows}}};
  testing::expect_device_agrees(
      [](Builder& builder, std::span<const Value> values) {
        const MeasuredUpdate updates[] = {{values[0], 0.5}, {values[1], 2.0}};
        return std::vector{muon_measures(builder, updates)};
      },
      inputs, {.dtype = *rc::gen::element(DType::f32, DType::bf16), .backward = false});
}

/// Both passes over matrices, with and without a step that is not finite.
RC_GTEST_PROP(MuonPasses, DevicesAgreeWithPlain, ()) {
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  const double scale = *rc::gen::element(1.0, 0.25, std::nan(""));
  const Shape shapes[] = {{*rc::gen::inRange<int64_t>(1, 200), *rc::gen::inRange<int64_t>(1, 200)},
                          {2, 3, *rc::gen::inRange<int64_t>(1, 9)}};
  const auto run_on = [&](const std::optional<testing::Emulation>& emulation) {
    Program program;
    Builder builder(program);
    Runtime runtime = testing::make_runtime(host_target(1, Kernels::plain), emulation);
    testing::ProgramRun run(program, runtime);
    const auto number = [&](const char* name, double value) {
      const Value input = builder.input(name, {{1}, DType::f64, {}});
      const Tensor tensor({1}, DType::f64);
      *tensor.data<double>() = value;
      run.bind(input, tensor);
      return input;
    };
    std::vector<Value> kept;
    const auto state = [&](const char* name, const Shape& shape, DType type) {
      const std::string full = fmt::format("{}{}", name, kept.size());
      kept.push_back(builder.state(full, {shape, type, {}}));
      run.bind(kept.back(), testing::random_tensor(shape, type, full));
      return kept.back();
    };
    const Value gradient_scale = number("scale", scale), rate = number("rate", 0.03);
    std::vector<MuonMomentum> momenta;
    for (const Shape& shape : shapes) {
      const Value gradient = state("gradient", shape, DType::f32);
      momenta.push_back({gradient, state("momentum", shape, DType::f32)});
    }
    const std::vector<Value> updates = muon_momentum(builder, gradient_scale, momenta, 0.95, dtype);
    std::vector<MuonMatrix> matrices;
    for (size_t i = 0; i < updates.size(); ++i) {
      matrices.push_back({.update = updates[i],
                          .master = state("master", shapes[i], DType::f32),
                          .weight = {},
                          .factor = 0.2 * static_cast<double>(i + 1),
                          .decays = i == 0});
      if (dtype == DType::bf16) matrices.back().weight = state("weight", shapes[i], dtype);
      builder.output(updates[i]);
    }
    muon_update(builder, {gradient_scale, rate}, matrices, 0.1);
    run.run();
    std::vector<std::vector<double>> results;
    for (const Value value : updates) results.push_back(testing::as_doubles(run[value]));
    for (const Value value : kept) results.push_back(testing::as_doubles(run[value]));
    return results;
  };
  const auto expected = run_on(std::nullopt);
  testing::expect_equal_bits_on_devices(testing::any_lanes(), run_on, [&](const auto& results) {
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      testing::expect_close(results[i], expected[i], testing::device_tolerance(dtype),
                            fmt::format("result {}", i));
    }
  });
}

}  // namespace
}  // namespace tessera
