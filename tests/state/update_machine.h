#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "ops/update/muon_measures.h"
#include "state/parameter_store.h"
#include "state/update_program.h"
#include "tensor/dispatch.h"

namespace tessera::testing {

/// Some parameters and their update program on one rank, ready to run.
class UpdateMachine {
 public:
  explicit UpdateMachine(ParameterList list, const OptimizerConfig& config = {}, int threads = 2,
                         const std::vector<StepSum>& losses = {})
      : parameters(std::move(list)),
        start(write_step_start(parameters.units(), parameters.specs(), losses)),
        update(write_update(parameters.units(), parameters.specs(), losses, config)),
        rounding(write_rounding(parameters.units(), parameters.specs())),
        runtime_(host_target(threads)),
        executor({&start, &update.program, &rounding}, kActions, runtime_),
        store(executor, update, 1, 2, parameters) {}

  void step(int64_t number, double rate, double limit = 0) {
    const auto set = [&](Value value, double given) {
      *executor.tensor(value, 1).data<double>() = given;
    };
    set(update.learning_rate, rate);
    set(update.clip_norm, limit);
    set(update.step, static_cast<double>(number));
    executor.run(kActions[1]);
  }
  void zero() { executor.run(kActions[0]); }
  double norm() const { return *executor.tensor(update.gradient_norm, 1).data<double>(); }
  /// Of Muon's last step.
  MuonMeasures measures() const {
    const auto sums = executor.tensor(*update.muon_measures, 1).values<double>();
    return {sums[0], sums[1], sums[2], sums[3]};
  }

 private:
  static constexpr Action kActions[] = {{.segment = Segment::whole, .program = 0},
                                        {.segment = Segment::whole, .program = 1},
                                        {.segment = Segment::whole, .program = 2}};

 public:
  ParameterList parameters;
  Program start;
  UpdateProgram update;
  Program rounding;

 private:
  Runtime runtime_;

 public:
  Executor executor;
  ParameterStore store;
};

inline void fill_random_gradients(const ParameterStore& store, double scale) {
  for (const ParameterSpec& spec : store.parameters()) {
    const CounterRandom random(9, spec.name);
    const Tensor gradient = store.memory(spec.name, Kept::gradient);
    dispatch_wide(gradient.dtype(), [&](auto type) {
      using Wide = decltype(type);
      for (int64_t i = 0; i < gradient.elements(); ++i) {
        gradient.data<Wide>()[i] = static_cast<Wide>(scale * random.normal(i));
      }
    });
  }
}

}  // namespace tessera::testing
