#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/world.h"
#include "comm/rank_groups.h"
#include "engine/executor.h"
#include "engine/lane_operations.h"
#include "support/delayed_transport.h"

namespace tessera::testing {

/// Returns the numbers that a rank gives a value of that id: others in each action.
inline std::vector<float> given_numbers(int rank, int id, int action, int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t drawn = int64_t{id} * 31 + i * 7 + rank * 13 + action;
    numbers.push_back(static_cast<float>(drawn % 97 - 48));
  }
  return numbers;
}

/// Writes the numbers that are given to a value of the program with that number in the executor's
/// list.
inline void give_value(Value value, const Program& program, Executor& executor, int action,
                       int number = 0, int micro_batch = 0) {
  const Tensor& tensor = executor.tensor(value, number, micro_batch);
  const std::vector<float> numbers =
      given_numbers(program.rank(), value.id, action, tensor.elements());
  executor.write(std::as_bytes(std::span(numbers)), tensor);
}

/// Writes what the program reads: other numbers on each rank and in each action. `number` is the
/// program's index in the executor's list.
inline void give(const Program& program, Executor& executor, int action, int number = 0) {
  for (size_t id = 0; id < program.values().size(); ++id) {
    const ValueInfo& info = program.values()[id];
    const bool is_given =
        info.kind == ValueKind::input || (info.kind == ValueKind::state && action == 0);
    if (is_given) give_value(Value{static_cast<int>(id)}, program, executor, action, number);
  }
}

/// Returns a tensor's numbers as a message has them that is sent now: when the compute lane has
/// done all that it was given, whether or not other lanes have.
inline std::vector<float> sent_numbers(Executor& executor, const Tensor& tensor) {
  std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
  const auto to = std::as_writable_bytes(std::span(numbers));
  if (executor.on_host()) {
    readback(tensor, to);
    return numbers;
  }
  const auto pinned = executor.runtime().accelerator()->allocate_host(tensor.bytes());
  executor.stream()->copy(pinned->address(), tensor.address(), tensor.bytes());
  executor.stream()->synchronize();
  std::copy_n(static_cast<const std::byte*>(pinned->address()), to.size(), to.data());
  return numbers;
}

/// Appends the outputs of a program or, if `kind` is state, its states.
inline void append(const Program& program, Executor& executor, ValueKind kind,
                   std::vector<float>& all, int number = 0) {
  for (size_t id = 0; id < program.values().size(); ++id) {
    const Value value{static_cast<int>(id)};
    const bool is_state = program.info(value).kind == ValueKind::state;
    if (kind == ValueKind::state ? !is_state : !program.is_output(value)) continue;
    const std::vector<float> numbers = sent_numbers(executor, executor.tensor(value, number));
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
}

/// Returns the outputs and states of a program after each of three actions.
inline std::vector<float> results(const Program& program, Executor& executor) {
  std::vector<float> all;
  for (int action = 0; action < 3; ++action) {
    give(program, executor, action);
    executor.run(kWholeProgram);
    executor.synchronize();
    append(program, executor, ValueKind::state, all);
    append(program, executor, ValueKind::computed, all);
  }
  return all;
}

/// Expects the same results whatever the lanes do first: with an observer, the executor waits for
/// each node before it goes on.
inline void expect_bits_of_one_node_after_the_other(const Program& program, Executor& executor) {
  const std::vector<float> with_lanes = results(program, executor);
  executor.set_observer([](const Program&, const Node&, std::span<const Tensor>) {});
  EXPECT_EQ(with_lanes, results(program, executor));
}

/// Returns a function for RankGroups that delays the calls of a rank's transports at random, each
/// by a seed of its own.
inline RankGroups::Join delayed_join(
    int rank, uint64_t seed,
    std::function<std::unique_ptr<Transport>(std::span<const int>, std::string_view)> transport) {
  return [=, next = seed * 1000 + static_cast<uint64_t>(rank)](std::span<const int> ranks,
                                                               std::string_view lane) mutable {
    const auto position = std::ranges::find(ranks, rank) - ranks.begin();
    return Communicator(std::make_unique<DelayedTransport>(transport(ranks, lane), next += 100),
                        std::vector<int>(ranks.begin(), ranks.end()), static_cast<int>(position));
  };
}

/// Calls body(groups) for each rank of a mesh, whose calls are delayed at random.
inline void run_delayed(World& world, const Mesh& mesh, uint64_t seed,
                        const std::function<void(RankGroups& groups)>& body) {
  run_ranks(world, [&](int rank) {
    RankGroups groups(mesh, rank,
                      delayed_join(rank, seed,
                                   [&](std::span<const int> ranks, std::string_view lane) {
                                     return world.transport(rank, ranks, lane);
                                   }),
                      [&](std::string_view why) { world.end_work(rank, why); });
    body(groups);
  });
}

}  // namespace tessera::testing
