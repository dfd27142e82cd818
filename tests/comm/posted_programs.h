#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/ranks_and_values.h"

namespace tessera {

/// A program of ranks that post messages and wait for them, in an order without a deadlock: each
/// action has a time, a message is awaited later than both of its ranks post it, and each rank goes
/// by the time. Messages from one rank to another are posted in the order of their indices.
struct PostedProgram {
  struct Message {
    int from, to;
    int64_t elements;
    DType dtype;
  };
  enum class What : uint8_t { post, wait, barrier };
  struct Action {
    int64_t time;
    What what;
    size_t message;
    bool sent;
    auto operator<=>(const Action&) const = default;
  };

  std::vector<Message> messages;
  std::vector<std::vector<Action>> actions;  // by position

  /// What a message has.
  Tensor contents(size_t message) const {
    const Message& of = messages[message];
    return random_tensor({of.elements}, of.dtype, static_cast<int>(message));
  }
  std::string name(size_t message) const { return "message " + std::to_string(message); }
};

inline PostedProgram any_posted_program(int ranks, uint32_t seed) {
  std::mt19937 generator(seed);
  const auto any = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(generator);
  };
  constexpr std::array<int64_t, 8> kElements{0, 1, 3, 500, 2048, 2049, 3000, 40'000};
  constexpr std::array kTypes{DType::f32, DType::bf16, DType::u8};
  PostedProgram program;
  program.actions.resize(static_cast<size_t>(ranks));
  const int64_t count = any(1, 40);
  const int64_t spread = any(1, 60);  // of the times: how many messages are under way at once
  std::map<std::tuple<int, int, bool>, int64_t> last_post;  // by channel and side
  for (int64_t i = 0; i < count; ++i) {
    const PostedProgram::Message message{
        static_cast<int>(any(0, ranks - 1)), static_cast<int>(any(0, ranks - 1)),
        kElements[static_cast<size_t>(any(0, kElements.size() - 1))],
        kTypes[static_cast<size_t>(any(0, kTypes.size() - 1))]};
    program.messages.push_back(message);
    int64_t both = 0;  // the time when both have posted it
    for (const bool sent : {true, false}) {
      int64_t& last = last_post[{message.from, message.to, sent}];
      last = std::max(last + 1, i + any(0, spread));
      both = std::max(both, last);
      program.actions[static_cast<size_t>(sent ? message.from : message.to)].push_back(
          {last, PostedProgram::What::post, static_cast<size_t>(i), sent});
    }
    for (const bool sent : {true, false}) {
      program.actions[static_cast<size_t>(sent ? message.from : message.to)].push_back(
          {both + 1 + any(0, spread), PostedProgram::What::wait, static_cast<size_t>(i), sent});
    }
  }
  for (int64_t barriers = any(0, 3), i = 0; i < barriers; ++i) {
    const int64_t time = any(0, count + spread);
    for (auto& actions : program.actions) {
      actions.push_back({time, PostedProgram::What::barrier, 0, false});
    }
  }
  for (auto& actions : program.actions) std::ranges::sort(actions);
  return program;
}

/// Runs the program's part of one rank. Returns the bytes of the messages that it receives, by
/// their index.
inline std::map<size_t, std::string> run_posted(const PostedProgram& program, Communicator& group) {
  struct Posted {
    Tensor tensor;
    PostedMessage post;
  };
  std::map<std::pair<size_t, bool>, Posted> posted;
  std::map<size_t, std::string> received;
  for (const PostedProgram::Action& action :
       program.actions[static_cast<size_t>(group.position())]) {
    const auto key = std::pair(action.message, action.sent);
    const std::string name = program.name(action.message);
    if (action.what == PostedProgram::What::barrier) {
      group.barrier("all");
    } else if (action.what == PostedProgram::What::post) {
      const PostedProgram::Message& message = program.messages[action.message];
      const Tensor tensor = action.sent ? program.contents(action.message)
                                        : Tensor({message.elements}, message.dtype);
      posted[key] = {tensor, action.sent ? group.post_send(name, message.to, tensor)
                                         : group.post_receive(name, message.from, tensor)};
    } else {
      Posted& awaited = posted.at(key);
      group.wait(awaited.post);
      if (!action.sent) received[action.message] = bytes_of(awaited.tensor);
      if (action.sent) awaited.tensor.fill_zero();  // what was sent may change from now on
      posted.erase(key);
    }
  }
  return received;
}

/// What the rank at a position must have received.
inline std::map<size_t, std::string> expected_of(const PostedProgram& program, int position) {
  std::map<size_t, std::string> expected;
  for (size_t i = 0; i < program.messages.size(); ++i) {
    if (program.messages[i].to == position) expected[i] = bytes_of(program.contents(i));
  }
  return expected;
}

}  // namespace tessera
