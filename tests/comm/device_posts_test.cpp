// Messages that are posted between emulated devices.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/connect_devices.h"
#include "comm/posted_programs.h"
#include "comm/rank_device.h"
#include "comm/ranks_and_values.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// Runs body(group, device) on so many ranks, whose devices post messages.
void run_posting(int size, const std::function<void(Communicator&, RankDevice&)>& body) {
  World world(size);
  run_ranks(world, [&](int rank) {
    RankDevice device(32);
    Communicator group = world.group(rank, first_ranks(size));
    connect_posts(
        group, first_ranks(size), [&] { return world.group(rank, first_ranks(size), "posts"); },
        device.accelerator(), std::chrono::seconds(60));
    body(group, device);
    device.stream().synchronize();
  });
}

/// A program without messages of a rank to itself, which devices do not post.
PostedProgram any_device_program(int ranks, uint32_t seed) {
  PostedProgram program = any_posted_program(ranks, seed);
  for (auto& actions : program.actions) {
    std::erase_if(actions, [&](const PostedProgram::Action& action) {
      const PostedProgram::Message& message = program.messages[action.message];
      return action.what != PostedProgram::What::barrier && message.from == message.to;
    });
  }
  return program;
}

/// Gives a device the program's part of its rank. Returns the tensors that it receives.
std::map<size_t, Tensor> give_program(const PostedProgram& program, Communicator& group,
                                      RankDevice& device) {
  std::map<std::pair<size_t, bool>, std::pair<Tensor, PostedMessage>> posted;
  std::map<size_t, Tensor> received;
  const auto tensor_of = [&](size_t message, bool sent) {
    const PostedProgram::Message& of = program.messages[message];
    return device.copy(sent ? program.contents(message) : Tensor({of.elements}, of.dtype));
  };
  const auto own = static_cast<size_t>(group.position());
  // Before the work is given, because a copy waits for the device.
  for (const PostedProgram::Action& action : program.actions[own]) {
    if (action.what != PostedProgram::What::post) continue;
    const auto key = std::pair(action.message, action.sent);
    posted[key].first = tensor_of(action.message, action.sent);
  }
  const DeviceCall call = device.call(0);
  for (const PostedProgram::Action& action : program.actions[own]) {
    const PostedProgram::Message& message = program.messages[action.message];
    if (action.what == PostedProgram::What::barrier) {
      group.barrier("all");
      continue;
    }
    auto& [tensor, post] = posted.at({action.message, action.sent});
    const std::string name = program.name(action.message);
    if (action.what == PostedProgram::What::wait) {
      group.wait(post, call);
      if (!action.sent) received[action.message] = tensor;
      // The sender's memory may change from now on.
      if (action.sent) call.stream->fill_zero(tensor.address(), tensor.bytes());
    } else if (action.sent) {
      post = group.post_send(name, message.to, tensor, call);
    } else {
      post = group.post_receive(name, message.from, tensor, call);
    }
  }
  return received;
}

RC_GTEST_PROP(DevicePosts, ArriveInAnyProgramWithoutADeadlock, ()) {
  const int ranks = *rc::gen::inRange(2, 5);
  const PostedProgram program = any_device_program(ranks, *rc::gen::arbitrary<uint32_t>());
  std::vector<std::map<size_t, std::string>> received(static_cast<size_t>(ranks));
  std::vector<int64_t> bytes(received.size());
  run_posting(ranks, [&](Communicator& group, RankDevice& device) {
    const auto own = static_cast<size_t>(group.position());
    const std::map<size_t, Tensor> tensors = give_program(program, group, device);
    device.stream().synchronize();
    for (const auto& [message, tensor] : tensors) {
      received[own][message] = bytes_of(on_host(tensor));
    }
    bytes[own] = group.traffic(Collective::message).received_bytes;
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = static_cast<size_t>(rank);
    std::map<size_t, std::string> expected = expected_of(program, rank);
    std::erase_if(expected,
                  [&](const auto& each) { return program.messages[each.first].from == rank; });
    RC_ASSERT(received[own] == expected);
    int64_t expected_bytes = 0;
    for (const auto& [message, contents] : expected) expected_bytes += std::ssize(contents);
    RC_ASSERT(bytes[own] == expected_bytes);
  }
}

/// The first rank sends what its stream has computed before the post, whatever comes later, and the
/// second one uses it after the wait.
TEST(DevicePosts, BeginAfterTheWorkOfTheStreamAndEndBeforeIt) {
  std::vector<double> results(2);
  run_posting(2, [&](Communicator& group, RankDevice& device) {
    const bool sender = group.position() == 0;
    const Tensor value = device.copy(random_tensor({1}, DType::f64, 1));
    const Tensor other = device.copy(random_tensor({1}, DType::f64, 2));
    const DeviceCall call = device.call(0);
    if (sender) call.stream->copy(value.address(), other.address(), 8);
    PostedMessage message =
        sender ? group.post_send("x", 1, value, call) : group.post_receive("x", 0, value, call);
    group.wait(message, call);
    if (!sender) call.stream->copy(other.address(), value.address(), 8);
    if (sender) call.stream->fill_zero(value.address(), 8);
    call.stream->synchronize();
    results[static_cast<size_t>(group.position())] = get(on_host(other), 0);
  });
  EXPECT_EQ(results[0], results[1]);
}

/// Both send first, and receive after that. In a graph the work is done in the order of the calls.
TEST(DevicePosts, AreRepeatedByAGraph) {
  constexpr int kTimes = 5;
  std::vector<double> results(2);
  run_posting(2, [&](Communicator& group, RankDevice& device) {
    const int peer = 1 - group.position();
    const Tensor own = device.copy(random_tensor({1}, DType::f64, group.position()));
    const Tensor others = device.copy(Tensor({1}, DType::f64));
    const DeviceCall call = device.call(0);
    call.stream->begin_capture();
    PostedMessage out = group.post_send("swap", peer, own, call);
    PostedMessage in = group.post_receive("swap", peer, others, call);
    group.wait(out, call);
    group.wait(in, call);
    call.stream->copy(own.address(), others.address(), 8);
    const std::unique_ptr<Graph> graph = call.stream->end_capture();
    for (int i = 0; i < kTimes; ++i) call.stream->launch(*graph);
    call.stream->synchronize();
    results[static_cast<size_t>(group.position())] = get(on_host(own), 0);
    EXPECT_EQ(group.traffic(Collective::message).calls, 2);
  });
  // They have swapped an odd number of times.
  EXPECT_EQ(results[0], get(random_tensor({1}, DType::f64, 1), 0));
  EXPECT_EQ(results[1], get(random_tensor({1}, DType::f64, 0), 0));
}

TEST(DevicePosts, ThatDifferAreNamed) {
  const std::string error = error_of([&] {
    run_posting(2, [&](Communicator& group, RankDevice& device) {
      const Tensor value = device.copy(Tensor({4 + group.position()}, DType::f32));
      const DeviceCall call = device.call(0);
      PostedMessage message = group.position() == 0 ? group.post_send("x", 1, value, call)
                                                    : group.post_receive("x", 0, value, call);
      group.wait(message, call);
    });
  });
  EXPECT_THAT(error, HasSubstr("rank 0 sends message 0 'x' of f32 [4] from rank 0 to rank 1"));
  EXPECT_THAT(error, HasSubstr("rank 1 receives message 0 'x' of f32 [5]"));
}

TEST(DevicePosts, OfARankThatFailsAreNotAwaited) {
  const std::string error = error_of([&] {
    run_posting(2, [&](Communicator& group, RankDevice& device) {
      const Tensor value = device.copy(Tensor({4}, DType::f32));
      const DeviceCall call = device.call(0);
      if (group.position() == 0) {
        const PostedMessage message = group.post_send("x", 1, value, call);
        throw Error("this device is on fire");
      }
      PostedMessage first = group.post_receive("x", 0, value, call);
      PostedMessage second = group.post_receive("x", 0, value, call);
      group.wait(second, call);
    });
  });
  EXPECT_EQ(error, "this device is on fire");
}

TEST(DevicePosts, AreMistakesWithoutWhatMovesThem) {
  const auto post = [](Communicator& group, RankDevice& device, int peer) {
    const Tensor value = device.copy(Tensor({4}, DType::f32));
    EXPECT_THROW(group.post_send("x", peer, value, device.call(0)), InternalError);
  };
  run_group(2, [&](Communicator& group) {
    RankDevice device(32);
    post(group, device, 1 - group.position());
  });
  run_posting(2, [&](Communicator& group, RankDevice& device) {
    post(group, device, group.position());
    const Tensor value({4}, DType::f32);
    const int peer = 1 - group.position();
    PostedMessage out = group.post_send("x", peer, value);
    PostedMessage in = group.post_receive("x", peer, Tensor({4}, DType::f32));
    EXPECT_THROW(group.wait(out, device.call(0)), InternalError) << "it is on the processor";
    group.wait(out);
    group.wait(in);
  });
}

}  // namespace
}  // namespace tessera
