#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "comm/mesh.h"
#include "engine/lane_operations.h"
#include "program/builder.h"

namespace tessera::testing {

/// A sum over ranks.
struct RandomSum {
  std::vector<Axis> axes;
  std::string call;
};
/// Sums of two lanes, each lane's in the order of its calls.
using RandomSums = std::array<std::vector<RandomSum>, 2>;

/// Writes random nodes: computing, and sums over ranks on two lanes. Their operands are values that
/// were given to it, states, which nodes change, and what nodes have made.
class RandomNodes {
 public:
  RandomNodes(Builder& builder, uint64_t seed) : own(seed), builder_(builder) {}

  /// Returns the axes of all groups whose ranks sum.
  static std::vector<std::vector<Axis>> groups(const Mesh& mesh) {
    return {{mesh.tensor()}, {mesh.data()[0]}, {mesh.tensor(), mesh.data()[0]}};
  }

  /// Draws sums, each over one of the groups.
  static RandomSums draw_sums(std::mt19937_64& draw, const std::vector<std::vector<Axis>>& groups,
                              int count, std::string_view of = "") {
    RandomSums sums;
    for (int i = 0; i < count; ++i) {
      const size_t lane = draw() % 2;
      const std::vector<Axis>& axes = groups[draw() % groups.size()];
      sums[lane].push_back({axes, fmt::format("sum {}{}", i, of)});
    }
    return sums;
  }

  /// Declares states. Programs with states of the same names share them.
  void add_states() {
    for (size_t i = 0; i < kStates; ++i) {
      states_.push_back(builder_.state(fmt::format("s{}", i), kSpec));
    }
  }
  Value add_input(const std::string& name) {
    values_.push_back(builder_.input(name, kSpec));
    return values_.back();
  }

  /// Writes the sums. It is drawn how those of the lanes follow each other, what is computed
  /// between them, and of which values.
  void write(const RandomSums& sums) {
    std::vector<size_t> next(2, 0);
    while (next[0] < sums[0].size() || next[1] < sums[1].size()) {
      if (own() % 3 == 0) compute();
      const size_t lane = own() % 2;
      if (next[lane] == sums[lane].size()) continue;
      sum(lane, sums[lane][next[lane]++]);
    }
  }

  void compute() {
    const bool in_place = own() % 3 == 0;
    const Value a = in_place ? draw(states_) : draw_operand();
    Value b = draw_operand();
    if (b == a) b = values_.front();
    if (b == a) return;
    const auto made = builder_.apply(std::make_shared<LaneCompute>(in_place), {a, b});
    if (!in_place) values_.push_back(made[0]);
  }
  /// Computes a new value from one and another that is drawn.
  Value compute_from(Value value) {
    Value other = draw_operand();
    if (other == value) other = draw(states_);
    values_.push_back(builder_.apply_single(std::make_shared<LaneCompute>(), {value, other}));
    return values_.back();
  }

  const std::vector<Value>& values() const { return values_; }

  std::mt19937_64 own;  ///< what all is drawn from

 private:
  Value draw(const std::vector<Value>& of) { return of[own() % of.size()]; }
  /// Draws a value that was made lately, an earlier one, or a state.
  Value draw_operand() {
    if (own() % 4 == 0) return draw(states_);
    return own() % 2 == 0 ? values_.back() : draw(values_);
  }

  void sum(size_t lane, const RandomSum& of) {
    const bool in_place = own() % 3 == 0;
    const Program& program = builder_.program();
    const auto ranks = static_cast<int>(program.mesh().group(program.rank(), of.axes).size());
    const auto operation = std::make_shared<LaneSum>(lane == 0 ? Lane::exchanges : Lane::reductions,
                                                     of.axes, ranks, of.call, in_place);
    const auto made = builder_.apply(operation, {in_place ? draw(states_) : draw_operand()});
    if (!in_place) values_.push_back(made[0]);
  }

  static constexpr size_t kStates = 3;
  inline static const Spec kSpec{{24}, DType::f32, {}};

  Builder& builder_;
  std::vector<Value> values_, states_;
};

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
        nodes_(builder, options.own_order
                            ? options.seed * 1000 + static_cast<uint64_t>(builder.program().rank())
                            : options.seed) {}

  void write() {
    for (size_t i = 0; i < kInputs; ++i) nodes_.add_input(fmt::format("x{}", i));
    nodes_.add_states();
    std::mt19937_64 shared(options_.seed);
    nodes_.write(RandomNodes::draw_sums(shared, RandomNodes::groups(builder_.program().mesh()),
                                        options_.sums));
    for (int i = 0; i < 3; ++i) nodes_.compute();
    // The last value, and one that may have been made long before the end, on any lane.
    const std::vector<Value>& values = nodes_.values();
    const size_t others = values.size() - 1 - kInputs;
    if (others > 0) builder_.output(values[kInputs + nodes_.own() % others]);
    builder_.output(values.back());
  }

 private:
  static constexpr size_t kInputs = 3;

  Builder& builder_;
  Options options_;
  RandomNodes nodes_;
};

}  // namespace tessera::testing
