#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/host_target.h"
#include "ops/update/muon_kernels.h"
#include "ops/update/muon_measures.h"
#include "ops/update/muon_passes.h"
#include "ops/update/newton_schulz.h"
#include "state/muon_program.h"
#include "state/update_machine.h"
#include "support/program_run.h"
#include "support/reference_tensors.h"
#include "support/relative_difference.h"
#include "support/run_program.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

using testing::as_doubles;
using testing::fill_random_gradients;
using testing::ReferenceTensors;

const std::vector<std::string> kMatrices{"wide", "tall", "square", "row", "idle", "faint"};

Shape shape_of(const ReferenceTensors& fixture, const std::string& name) {
  return Shape(std::span<const int64_t>(fixture.shape("initial/" + name)));
}

/// The fixture's matrices, two of them together as two experts' would be, and its other tensors.
ParameterList fixture_parameters(const ReferenceTensors& fixture, DType dtype) {
  Program program;
  Builder builder(program);
  ParameterList list;
  const auto declare = [&](const std::string& name, ParameterRole role, const char* unit) {
    list.declare(builder, name, shape_of(fixture, name), {}, dtype, role, {.deviation = 1}, unit);
  };
  for (const std::string& name : kMatrices) declare(name, ParameterRole::matrix, "layer");
  declare("embedding", ParameterRole::embedding, "embedding");
  declare("norm", ParameterRole::norm, "layer");
  declare("convolution", ParameterRole::matrix, "layer");
  return list;
}

OptimizerConfig muon_config() {
  OptimizerConfig config;
  config.name = OptimizerName::muon;
  config.decay_rule = DecayRule::all;
  config.beta1 = 0.9;
  config.beta2 = 0.95;
  return config;
}

/// The update of some parameters by Muon.
class MuonMachine : public testing::UpdateMachine {
 public:
  explicit MuonMachine(ParameterList list, const OptimizerConfig& config = muon_config(),
                       int threads = 2)
      : UpdateMachine(std::move(list), config, threads) {}
};

void set_numbers(const Tensor& tensor, std::span<const float> numbers) {
  ASSERT_EQ(tensor.elements(), std::ssize(numbers));
  dispatch_wide(tensor.dtype(),
                [&](auto type) { std::ranges::copy(numbers, tensor.data<decltype(type)>()); });
}

/// A tensor of the fixture, of f64 or f32, as numbers.
std::vector<double> expected_numbers(const ReferenceTensors& fixture, const std::string& name) {
  if (name.starts_with("f64/")) return fixture.f64(name);
  const std::vector<float> values = fixture.f32(name);
  return {values.begin(), values.end()};
}

/// The part of step `step` of a tensor of the fixture whose first dim is the steps.
template <typename T>
std::span<const T> of_step(const std::vector<T>& all, size_t step, size_t steps) {
  const size_t size = all.size() / steps;
  return std::span(all).subspan(step * size, size);
}

void expect_near(const Tensor& found, std::span<const double> expected, double tolerance,
                 const std::string& what) {
  const std::vector<double> numbers = as_doubles(found);
  ASSERT_EQ(numbers.size(), expected.size()) << what;
  double largest = 0, error = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(numbers[i] - expected[i]));
  }
  EXPECT_LE(error, tolerance * largest) << what << ": off by " << error / largest;
}

/// Newton-Schulz of the fixture's first gradient of a matrix.
std::vector<double> orthogonalised(const ReferenceTensors& fixture, const std::string& name,
                                   DType dtype) {
  const Shape shape = shape_of(fixture, name);
  Program program;
  Builder builder(program);
  const Value matrix = builder.input("matrix", {shape, dtype, {}});
  const Value result = newton_schulz(builder, {{matrix}}, 5).front();
  builder.output(result);
  Runtime runtime(host_target(1));
  testing::ProgramRun run(program, runtime);
  const std::vector<float> gradients = fixture.f32("gradient/" + name);
  const Tensor first(shape, DType::f32);
  std::copy_n(gradients.begin(), first.elements(), first.data<float>());
  const Tensor given(shape, dtype);
  convert(first, given);
  run.bind(matrix, given);
  run.run();
  return as_doubles(run[result]);
}

double root_mean_square_difference(std::span<const double> a, std::span<const double> b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

TEST(NewtonSchulz, IsThatOfPyTorch) {
  const ReferenceTensors fixture("muon");
  for (const std::string& name : kMatrices) {
    const auto exact = expected_numbers(fixture, "f64/newton_schulz/" + name);
    for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-5}}) {
      const auto expected =
          expected_numbers(fixture, fmt::format("{}/newton_schulz/{}", dtype_name(dtype), name));
      EXPECT_LE(testing::relative_difference(expected, orthogonalised(fixture, name, dtype)),
                tolerance)
          << name << " in " << dtype_name(dtype);
    }
    // Rounding in another order gives other last bits: what counts is how far both are from exact.
    const auto of_torch = expected_numbers(fixture, "bf16/newton_schulz/" + name);
    EXPECT_LE(root_mean_square_difference(orthogonalised(fixture, name, DType::bf16), exact),
              2 * root_mean_square_difference(of_torch, exact))
        << name;
  }
}

TEST(Muon, FollowsTheReferenceOverTenSteps) {
  const ReferenceTensors fixture("muon");
  const std::vector<double> rates = fixture.f64("learning_rate");
  struct Case {
    DType dtype;
    std::string prefix;
    double tolerance;
  };
  for (const auto& [dtype, prefix, tolerance] :
       {Case{DType::f64, "f64/", 1e-10}, Case{DType::f32, "f32/", 1e-5}}) {
    MuonMachine machine(fixture_parameters(fixture, dtype));
    for (const ParameterSpec& spec : machine.store.parameters()) {
      set_numbers(machine.store.memory(spec.name, Kept::master),
                  fixture.f32("initial/" + spec.name));
    }
    for (size_t step = 0; step < rates.size(); ++step) {
      for (const ParameterSpec& spec : machine.store.parameters()) {
        const std::vector<float> gradients = fixture.f32("gradient/" + spec.name);
        set_numbers(machine.store.memory(spec.name, Kept::gradient),
                    of_step(gradients, step, rates.size()));
      }
      machine.step(static_cast<int64_t>(step) + 1, rates[step]);
      for (const ParameterSpec& spec : machine.store.parameters()) {
        const auto check = [&](const std::string& part, const Tensor& found) {
          const auto all = expected_numbers(fixture, prefix + part + "/" + spec.name);
          expect_near(found, of_step(all, step, rates.size()), tolerance,
                      fmt::format("{}{} of {} after step {}", prefix, part, spec.name, step + 1));
        };
        check("weight", machine.store.memory(spec.name, Kept::master));
        const bool by_muon = std::ranges::find(kMatrices, spec.name) != kMatrices.end();
        check(by_muon ? "momentum" : "first_moment",
              machine.store.memory(spec.name, Kept::first_moment));
        if (!by_muon) check("second_moment", machine.store.memory(spec.name, Kept::second_moment));
      }
    }
  }
}

TEST(Muon, InBf16IsTheReferenceInBf16ButForItsRounding) {
  const ReferenceTensors fixture("muon");
  const std::vector<double> rates = fixture.f64("learning_rate");
  MuonMachine machine(fixture_parameters(fixture, DType::bf16));
  for (const ParameterSpec& spec : machine.store.parameters()) {
    if (spec.dtype != DType::bf16) continue;
    set_numbers(machine.store.memory(spec.name, Kept::master), fixture.f32("initial/" + spec.name));
  }
  for (size_t step = 0; step < rates.size(); ++step) {
    for (const std::string& name : kMatrices) {
      const std::vector<float> gradients = fixture.f32("gradient/" + name);
      set_numbers(machine.store.memory(name, Kept::gradient),
                  of_step(gradients, step, rates.size()));
    }
    machine.step(static_cast<int64_t>(step) + 1, rates[step]);
  }
  for (const std::string& name : kMatrices) {
    const Tensor master = machine.store.memory(name, Kept::master);
    const auto expected = expected_numbers(fixture, "bf16/weight/" + name);
    // The script's own bound between bf16 in two orders.
    expect_near(master, of_step(expected, rates.size() - 1, rates.size()), 0.01, name);
    const Tensor weight = machine.store.memory(name, Kept::weight);
    for (int64_t i = 0; i < master.elements(); ++i) {
      ASSERT_EQ(weight.data<BFloat16>()[i].bits, BFloat16(master.data<float>()[i]).bits);
    }
  }
}

/// A layer with two matrices and a norm, experts, an embedding and a router.
ParameterList model_parameters(DType dtype) {
  Program program;
  Builder builder(program);
  ParameterList list;
  const DType wide = accumulation_dtype(dtype);
  const auto declare = [&](const char* name, const Shape& shape, ParameterRole role,
                           const char* unit, DType type) {
    list.declare(builder, name, shape, {}, type, role, {.deviation = 0.5}, unit);
  };
  declare("embedding", {40, 17}, ParameterRole::embedding, "embedding", dtype);
  declare("norm", {33}, ParameterRole::norm, "layer", wide);
  declare("query", {65, 33}, ParameterRole::matrix, "layer", dtype);
  declare("scales", {33}, ParameterRole::matrix, "layer", wide);
  declare("router", {4, 33}, ParameterRole::router, "layer", wide);
  declare("gate", {3, 24, 33}, ParameterRole::expert, "experts", dtype);
  declare("head", {40, 17}, ParameterRole::head, "head", dtype);
  return list;
}

TEST(Muon, UpdatesHiddenMatricesAndAdamWTheRest) {
  const ParameterList list = model_parameters(DType::bf16);
  std::map<std::string, OptimizerName> chosen;
  for (const ParameterSpec& spec : list.specs()) {
    chosen[spec.name] = updated_by(muon_config(), spec);
    EXPECT_EQ(updated_by({}, spec), OptimizerName::adamw) << spec.name;
    const ParameterUnit& unit = list.units()[static_cast<size_t>(spec.unit_index)];
    EXPECT_EQ(updated_by(muon_config(), unit), chosen[spec.name]) << unit.name;
  }
  const auto by = [](const char* name, OptimizerName optimizer) {
    return std::pair<const std::string, OptimizerName>(name, optimizer);
  };
  EXPECT_EQ(chosen, (std::map<std::string, OptimizerName>{
                        by("embedding", OptimizerName::adamw), by("norm", OptimizerName::adamw),
                        by("query", OptimizerName::muon), by("scales", OptimizerName::adamw),
                        by("router", OptimizerName::muon), by("gate", OptimizerName::muon),
                        by("head", OptimizerName::adamw)}));
}

TEST(Muon, OnlyWhatAdamWUpdatesHasASecondMoment) {
  const MuonMachine machine(model_parameters(DType::bf16));
  int64_t states = 0;
  for (const ValueInfo& info : machine.update.program.values()) {
    if (!info.view && info.name.starts_with("second_moment:")) states += info.spec.bytes();
  }
  int64_t expected = 0;
  for (const ParameterUnit& unit : machine.parameters.units()) {
    if (!unit.matrices) expected += 4 * unit.elements;
  }
  EXPECT_EQ(states, expected);
  for (const ParameterSpec& spec : machine.store.parameters()) {
    EXPECT_EQ(machine.store.memory(spec.name, Kept::second_moment).defined(),
              updated_by(muon_config(), spec) == OptimizerName::adamw)
        << spec.name;
  }
}

/// Bytes of all weights, masters and moments.
std::vector<std::byte> bytes_of_states(const ParameterStore& store) {
  std::vector<std::byte> bytes;
  for (const ParameterSpec& spec : store.parameters()) {
    for (const Kept kind : {Kept::weight, Kept::master, Kept::first_moment, Kept::second_moment}) {
      const Tensor tensor = store.memory(spec.name, kind);
      if (tensor.defined()) bytes.insert(bytes.end(), tensor.raw(), tensor.raw() + tensor.bytes());
    }
  }
  return bytes;
}

TEST(Muon, AStepThatIsNotFiniteChangesNothing) {
  MuonMachine machine(model_parameters(DType::bf16));
  machine.store.initialize(4, 2);
  fill_random_gradients(machine.store, 1);
  machine.step(1, 1e-2);
  const auto before = bytes_of_states(machine.store);
  machine.store.memory("embedding", Kept::gradient).data<float>()[7] = std::nanf("");
  machine.step(2, 1e-2);
  EXPECT_TRUE(bytes_of_states(machine.store) == before);
  machine.store.memory("embedding", Kept::gradient).data<float>()[7] = 1;
  machine.step(2, 1e-2);
  EXPECT_FALSE(bytes_of_states(machine.store) == before);
}

/// Gradients that are clipped to a power of two of their norm give the same bits.
TEST(Muon, AStrongClipChangesNoUpdate) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    double norm = 0;
    std::vector<std::vector<double>> weights;
    for (const int exponent : {0, -30, -90}) {
      MuonMachine machine(model_parameters(dtype));
      machine.store.initialize(4, 2);
      fill_random_gradients(machine.store, 1);
      machine.step(1, 1e-2, std::ldexp(norm, exponent));  // the first one is not clipped
      norm = machine.norm();
      std::vector<double>& of_run = weights.emplace_back();
      for (const char* name : {"query", "router", "gate"}) {
        const std::vector<double> numbers = as_doubles(machine.store.memory(name, Kept::master));
        of_run.insert(of_run.end(), numbers.begin(), numbers.end());
      }
    }
    EXPECT_TRUE(weights[1] == weights[0]) << dtype_name(dtype);
    EXPECT_TRUE(weights[2] == weights[0]) << dtype_name(dtype);
  }
}

TEST(Muon, SameBitsWithAnyNumberOfThreads) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    std::vector<std::byte> one;
    for (const int threads : {1, 2, 3, 8}) {
      MuonMachine machine(model_parameters(dtype), muon_config(), threads);
      machine.store.initialize(4, threads);
      for (int64_t step = 1; step <= 2; ++step) {
        fill_random_gradients(machine.store, 0.3 * static_cast<double>(step));
        machine.step(step, 1e-2, 1.0);
      }
      const auto bytes = bytes_of_states(machine.store);
      if (threads == 1) one = bytes;
      EXPECT_TRUE(bytes == one) << dtype_name(dtype) << ", " << threads << " threads";
    }
  }
}

/// The measures of one step from zero momenta, by full products, in f64.
TEST(Muon, MeasuresTheUpdatesThatItMakes) {
  MuonMachine machine(model_parameters(DType::f64), [] {
    OptimizerConfig config = muon_config();
    config.weight_decay = 0;
    return config;
  }());
  machine.store.initialize(4, 2);
  std::map<std::string, std::vector<double>> before;
  for (const ParameterSpec& spec : machine.store.parameters()) {
    before[spec.name] = as_doubles(machine.store.memory(spec.name, Kept::master));
  }
  fill_random_gradients(machine.store, 1);
  constexpr double kRate = 0.5;
  machine.step(1, kRate);
  double squares = 0, elements = 0, deviations = 0, dims = 0;
  for (const char* name : {"query", "router", "gate"}) {
    const Shape shape =
        std::ranges::find(machine.store.parameters(), name, &ParameterSpec::name)->shape;
    const int64_t rows = shape.dim(-2), columns = shape.dim(-1);
    std::vector<double> update =
        as_doubles(machine.store.memory(name, Kept::master));  // factor · U
    for (size_t i = 0; i < update.size(); ++i) update[i] = (before[name][i] - update[i]) / kRate;
    const double factor = muon_factor(shape);
    const int64_t n = std::min(rows, columns), m = std::max(rows, columns);
    for (size_t first = 0; first < update.size(); first += static_cast<size_t>(rows * columns)) {
      const auto entry = [&](int64_t i, int64_t j) {  // of the wide U
        const int64_t at = rows <= columns ? i * columns + j : j * columns + i;
        return update[first + static_cast<size_t>(at)] / factor;
      };
      for (int64_t i = 0; i < n; ++i) {
        double along = -muon_probe_sign(i);
        for (int64_t k = 0; k < n; ++k) {
          double gram = 0;
          for (int64_t j = 0; j < m; ++j) gram += entry(i, j) * entry(k, j);
          along += gram * muon_probe_sign(k);
        }
        deviations += along * along;
        for (int64_t j = 0; j < m; ++j) squares += std::pow(factor * entry(i, j), 2);
      }
      elements += static_cast<double>(n * m);
      dims += static_cast<double>(n);
    }
  }
  const MuonMeasures found = machine.measures();
  EXPECT_NEAR(found.squares, squares, 1e-9 * squares);
  EXPECT_EQ(found.elements, elements);
  EXPECT_NEAR(found.deviations, deviations, 1e-9 * deviations);
  EXPECT_EQ(found.dims, dims);
  EXPECT_NEAR(found.rms(), 0.2, 0.04);  // what 0.2 sqrt(max(rows, columns)) is for
  EXPECT_LT(found.deviation(), 0.5);
}

TEST(Muon, ProbeSignsAreBalanced) {
  double sum = 0, neighbours = 0;
  for (int64_t i = 0; i < 4096; ++i) {
    EXPECT_EQ(std::abs(muon_probe_sign(i)), 1);
    sum += muon_probe_sign(i);
    neighbours += muon_probe_sign(i) * muon_probe_sign(i + 1);
  }
  EXPECT_LT(std::abs(sum), 4 * 64);  // four deviations of 4,096 signs
  EXPECT_LT(std::abs(neighbours), 4 * 64);
}

}  // namespace
}  // namespace tessera
