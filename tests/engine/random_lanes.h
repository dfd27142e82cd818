#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/mesh.h"
#include "engine/lane_operations.h"
#include "program/builder.h"

namespace tessera::testing {

/// A random program of sums over ranks on two lanes, and of computing between them. Its values are
/// inputs, states, which nodes change, and computed ones.
///
/// All ranks make the same sums in the same order on each lane. With `own_order` each rank draws
/// for itself how the lanes' sums follow each other, what is computed between them, and of which
/// values: some of these programs wait for each other for ever.
class RandomLanes {
 public:
  struct Options {
    uint64_t seed = 0;
    int sums = 8;
    bool own_order = false;
  };

  RandomLanes(Builder& builder, const Options& options)
      : builder_(builder),
        options_(options),
        shared_(options.seed),
        own_(options.own_order
                 ? options.seed * 1000 + static_cast<uint64_t>(builder.program().rank())
                 : options.seed) {}

  /// Returns the axes of all groups whose ranks sum.
  static std::vector<std::vector<Axis>> groups(const Mesh& mesh) {
    return {{mesh.tensor()}, {mesh.data()[0]}, {mesh.tensor(), mesh.data()[0]}};
  }

  void write() {
    for (size_t i = 0; i < kInputs; ++i) {
      values_.push_back(builder_.input(fmt::format("x{}", i), kSpec));
      states_.push_back(builder_.state(fmt::format("s{}", i), kSpec));
    }
    draw_sums();
    std::vector<size_t> next(2, 0);
    while (next[0] < sums_[0].size() || next[1] < sums_[1].size()) {
      if (own_() % 3 == 0) compute();
      const size_t lane = own_() % 2;
      if (next[lane] == sums_[lane].size()) continue;
      sum(lane, sums_[lane][next[lane]++]);
    }
    for (int i = 0; i < 3; ++i) compute();
    // The last value, and one that may have been made long before the end, on any lane.
    const size_t others = values_.size() - 1 - kInputs;
    if (others > 0) builder_.output(values_[kInputs + own_() % others]);
    builder_.output(values_.back());
  }

 private:
  struct Sum {
    std::vector<Axis> axes;
    std::string call;
  };

  /// Draws the sums of both lanes, the same on all ranks.
  void draw_sums() {
    const std::vector<std::vector<Axis>> groups = RandomLanes::groups(builder_.program().mesh());
    for (int i = 0; i < options_.sums; ++i) {
      const size_t lane = shared_() % 2;
      const std::vector<Axis>& axes = groups[shared_() % groups.size()];
      sums_[lane].push_back({axes, fmt::format("sum {}", i)});
    }
  }

  Value draw(const std::vector<Value>& of) { return of[own_() % of.size()]; }
  /// Draws a value that was made lately, an earlier one, or a state.
  Value draw_operand() {
    if (own_() % 4 == 0) return draw(states_);
    return own_() % 2 == 0 ? values_.back() : draw(values_);
  }

  void compute() {
    const bool in_place = own_() % 3 == 0;
    const Value a = in_place ? draw(states_) : draw_operand();
    Value b = draw_operand();
    if (b == a) b = values_.front();
    if (b == a) return;
    const auto made = builder_.apply(std::make_shared<LaneCompute>(in_place), {a, b});
    if (!in_place) values_.push_back(made[0]);
  }

  void sum(size_t lane, const Sum& of) {
    const bool in_place = own_() % 3 == 0;
    const Program& program = builder_.program();
    const auto ranks = static_cast<int>(program.mesh().group(program.rank(), of.axes).size());
    const auto operation = std::make_shared<LaneSum>(lane == 0 ? Lane::exchanges : Lane::reductions,
                                                     of.axes, ranks, of.call, in_place);
    const auto made = builder_.apply(operation, {in_place ? draw(states_) : draw_operand()});
    if (!in_place) values_.push_back(made[0]);
  }

  static constexpr size_t kInputs = 3;
  inline static const Spec kSpec{{24}, DType::f32, {}};

  Builder& builder_;
  Options options_;
  std::mt19937_64 shared_, own_;
  std::vector<Value> values_, states_;
  std::vector<Sum> sums_[2];  // by lane
};

}  // namespace tessera::testing
