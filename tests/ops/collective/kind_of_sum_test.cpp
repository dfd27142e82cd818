#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "comm/call_list.h"
#include "ops/collective/convert.h"
#include "ops/collective/flat.h"
#include "ops/collective/stages.h"
#include "program/builder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Target target_of(Device device, bool deterministic) {
  Target target;
  target.device = device;
  target.deterministic = deterministic;
  return target;
}

/// What the nodes of rank 0's program call on a target, and the most workspace of a node.
struct Sums {
  std::vector<std::string> calls;
  int64_t workspace = 0;
};

Sums sums_of(const Program& program, const Target& target) {
  Sums result;
  for (const Node& node : program.nodes()) {
    std::vector<CallList> lists;
    for (const std::vector<Axis>& axes : node.operation->group_axes()) {
      lists.emplace_back(program.mesh().group(0, axes), 0).begin_part();
    }
    std::vector<CallList*> groups;
    for (CallList& list : lists) groups.push_back(&list);
    const std::vector<Spec> inputs = program.specs(node.inputs);
    const std::vector<Spec> outputs = program.specs(node.outputs);
    node.operation->list_calls({.target = target,
                                .inputs = inputs,
                                .outputs = outputs,
                                .name = program.name_of(node),
                                .groups = groups});
    for (const CallList& list : lists) {
      for (const Fingerprint& call : list.calls()) {
        if (!reduces(call.collective)) continue;
        result.calls.emplace_back(word(call.reduction));
      }
    }
    result.workspace = std::max(result.workspace, node.operation->workspace_bytes(target, inputs));
  }
  return result;
}

/// Writes a sum over the tensor axis of a value of this type on the data axis. `write` makes the
/// sum.
template <typename Write>
Program program_of(const Mesh& mesh, const TypeOnAxis& on_data, Write&& write) {
  Program program(mesh);
  Builder builder(program);
  const Distribution type =
      Distribution().with(mesh.tensor(), partial()).with(mesh.data()[0], on_data);
  write(builder, builder.state("x", {{4000, 2}, DType::f32, type}));
  return program;
}

/// All ways to sum over the tensor axis, by name.
std::vector<Program> programs(const Mesh& mesh, const TypeOnAxis& on_data) {
  const std::vector<Axis> axes{mesh.tensor()};
  std::vector<Program> result;
  result.push_back(program_of(mesh, on_data, [&](Builder& builder, Value x) {
    convert(builder, x, axes[0], Placement::partial, invariant());
  }));
  result.push_back(program_of(mesh, on_data, [&](Builder& builder, Value x) {
    convert(builder, x, axes[0], Placement::partial, sharded(0));
  }));
  result.push_back(
      program_of(mesh, on_data, [&](Builder& builder, Value x) { take_sum(builder, x, axes); }));
  result.push_back(program_of(
      mesh, on_data, [&](Builder& builder, Value x) { take_sum_by_level(builder, x, axes, {}); }));
  return result;
}

TEST(KindOfSum, IsTheLibrarysIfARunOnDevicesIsNotDeterministic) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  for (const Program& program : programs(mesh, sharded(1))) {
    SCOPED_TRACE(program.nodes()[0].operation->name());
    for (const Device device : {Device::emulated, Device::cuda}) {
      const Sums free = sums_of(program, target_of(device, false));
      EXPECT_THAT(free.calls, ElementsAre("sum in any order"));
      EXPECT_EQ(free.workspace, 0);
      const Sums ordered = sums_of(program, target_of(device, true));
      EXPECT_THAT(ordered.calls, ElementsAre("sum"));
      EXPECT_GT(ordered.workspace, 0);
    }
    EXPECT_THAT(sums_of(program, target_of(Device::cpu, false)).calls, ElementsAre("sum"));
  }
}

/// The data ranks would take the same sum in two groups, perhaps in two orders.
TEST(KindOfSum, IsInTheOrderOfTheRanksIfOtherGroupsHoldCopies) {
  for (const TypeOnAxis& copies : {invariant(), replicated()}) {
    for (const Program& program : programs(Mesh({.tensor = 2, .data = {2}}), copies)) {
      SCOPED_TRACE(program.nodes()[0].operation->name());
      const Sums sums = sums_of(program, target_of(Device::emulated, false));
      EXPECT_THAT(sums.calls, ElementsAre("sum"));
      EXPECT_GT(sums.workspace, 0);
    }
    for (const Program& program : programs(Mesh({.tensor = 2}), copies)) {
      EXPECT_THAT(sums_of(program, target_of(Device::emulated, false)).calls,
                  ElementsAre("sum in any order"));
    }
  }
}

TEST(KindOfSum, OverStagesFollowsTheSameRules) {
  const auto sum = [](const Mesh& mesh) {
    Program program(mesh);
    Builder builder(program);
    const std::vector<Value> values{builder.state("x", {{4000}, DType::f32, {}})};
    sum_over_stages(builder, "tied", values);
    return sums_of(program, target_of(Device::emulated, false)).calls;
  };
  EXPECT_THAT(sum(Mesh({.pipeline = 2})), ElementsAre("sum in any order"));
  EXPECT_THAT(sum(Mesh({.pipeline = 2, .data = {2}})), ElementsAre("sum"));
  EXPECT_THAT(sum(Mesh({.data = {2}})), IsEmpty());
}

}  // namespace
}  // namespace tessera
