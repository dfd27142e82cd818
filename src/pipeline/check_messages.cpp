// The parts of validate() that look at messages: both sides post and await each once, at a time
// when it is there, and in the same order.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "pipeline/checks.h"

namespace tessera {
namespace {

/// The state of one side's messages while its list is read.
struct MessageSide {
  std::map<BoundaryMessage, int> posted;  // with the entry
  std::set<BoundaryMessage> awaited;
};

const char* words_for_side(bool send) { return send ? "send" : "receive"; }

/// Reads the list of one rank from its first entry to its last.
class MessageCheck {
 public:
  MessageCheck(const PipelineSchedule& schedule, int rank, std::vector<ScheduleFinding>& findings)
      : schedule_(schedule), rank_(rank), findings_(findings) {}

  void run() {
    for (const ScheduleEntry& entry : schedule_.ranks[static_cast<size_t>(rank_)]) {
      if (const auto* action = std::get_if<ChunkAction>(&entry)) {
        check_action(*action);
      } else {
        check_call(std::get<MessageEntry>(entry));
      }
      ++entry_;
    }
    require_awaited(sends_, true);
    require_awaited(receives_, false);
  }

  const MessageSide& sends() const { return sends_; }
  const MessageSide& receives() const { return receives_; }

 private:
  template <typename... Arguments>
  void add(FindingKind kind, int entry, fmt::format_string<Arguments...> format,
           Arguments&&... arguments) {
    findings_.push_back({.kind = kind,
                         .rank = rank_,
                         .entry = entry,
                         .reason = fmt::format(format, std::forward<Arguments>(arguments)...)});
  }

  void check_action(const ChunkAction& action) {
    const auto input = schedule_.placement.input_of(action);
    if (input && !receives_.awaited.contains(*input)) {
      add(FindingKind::order, entry_, "{} needs the {}, which no entry before it awaits",
          words_for(action), words_for(*input));
    }
    if (const auto output = schedule_.placement.output_of(action)) computed_.insert(*output);
  }

  void check_call(const MessageEntry& entry) {
    if (!is_here(entry)) return;
    const bool send = entry.call == MessageCall::post_send || entry.call == MessageCall::wait_send;
    MessageSide& side = send ? sends_ : receives_;
    if (entry.call == MessageCall::post_send || entry.call == MessageCall::post_receive) {
      check_post(entry.message, side, send);
    } else if (!side.posted.contains(entry.message)) {
      add(FindingKind::unposted, entry_, "waits for a {} of the {} that no entry before it posts",
          words_for_side(send), words_for(entry.message));
    } else if (!side.awaited.insert(entry.message).second) {
      add(FindingKind::repeated, entry_, "waits a second time for the {} of the {}",
          words_for_side(send), words_for(entry.message));
    }
  }

  void check_post(const BoundaryMessage& message, MessageSide& side, bool send) {
    const auto [first, inserted] = side.posted.insert({message, entry_});
    if (!inserted) {
      add(FindingKind::posted_twice, entry_,
          "posts the {} of the {}, which entry {} has posted: its memory is in use",
          words_for_side(send), words_for(message), first->second);
    } else if (send && !computed_.contains(message)) {
      add(FindingKind::order, entry_, "sends the {} before they are computed", words_for(message));
    }
  }

  /// Returns whether a message crosses and has this side on this rank. Adds a finding if not.
  bool is_here(const MessageEntry& entry) {
    const BoundaryMessage& message = entry.message;
    if (message.micro_batch < 0 || message.micro_batch >= schedule_.micro_batches ||
        !schedule_.placement.crosses(message)) {
      add(FindingKind::unknown, entry_, "{}: no such message crosses between ranks",
          words_for(message));
      return false;
    }
    const bool send = entry.call == MessageCall::post_send || entry.call == MessageCall::wait_send;
    const Channel channel = schedule_.placement.channel(message);
    const int expected = send ? channel.sender : channel.receiver;
    if (expected == rank_) return true;
    add(FindingKind::wrong_rank, entry_, "the {} of the {} is for rank {}", words_for_side(send),
        words_for(message), expected);
    return false;
  }

  void require_awaited(const MessageSide& side, bool send) {
    for (const auto& [message, entry] : side.posted) {
      if (side.awaited.contains(message)) continue;
      add(FindingKind::unawaited, entry,
          "posts the {} of the {}, which no later entry awaits: its memory is never free",
          words_for_side(send), words_for(message));
    }
  }

  const PipelineSchedule& schedule_;
  int rank_;
  std::vector<ScheduleFinding>& findings_;
  int entry_ = 0;
  MessageSide sends_, receives_;
  std::set<BoundaryMessage> computed_;
};

}  // namespace

void check_messages(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings) {
  std::map<BoundaryMessage, int> sends;  // with the entry
  std::map<BoundaryMessage, int> receives;
  for (int rank = 0; rank < schedule.placement.ranks; ++rank) {
    MessageCheck check(schedule, rank, findings);
    check.run();
    sends.insert(check.sends().posted.begin(), check.sends().posted.end());
    receives.insert(check.receives().posted.begin(), check.receives().posted.end());
  }
  const auto require_both = [&](const auto& posted, const auto& others, bool send) {
    for (const auto& [message, entry] : posted) {
      if (others.contains(message)) continue;
      const Channel channel = schedule.placement.channel(message);
      findings.push_back(
          {.kind = FindingKind::untaken,
           .rank = send ? channel.sender : channel.receiver,
           .entry = entry,
           .reason = fmt::format("posts the {} of the {}, but rank {} posts no {} of it",
                                 words_for_side(send), words_for(message),
                                 send ? channel.receiver : channel.sender, words_for_side(!send))});
    }
  };
  require_both(sends, receives, true);
  require_both(receives, sends, false);
}

void check_message_order(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings) {
  struct Post {
    BoundaryMessage message;
    int entry;
  };
  std::map<Channel, std::vector<Post>> sends;
  std::map<Channel, std::vector<Post>> receives;
  for (const auto& list : schedule.ranks) {
    for (size_t entry = 0; entry < list.size(); ++entry) {
      const auto* call = std::get_if<MessageEntry>(&list[entry]);
      if (call == nullptr) continue;
      const Channel channel = schedule.placement.channel(call->message);
      const Post post{call->message, static_cast<int>(entry)};
      if (call->call == MessageCall::post_send) sends[channel].push_back(post);
      if (call->call == MessageCall::post_receive) receives[channel].push_back(post);
    }
  }
  for (const auto& [channel, posts] : sends) {
    const std::vector<Post>& others = receives[channel];
    for (size_t i = 0; i < std::min(posts.size(), others.size()); ++i) {
      if (posts[i].message == others[i].message) continue;
      findings.push_back(
          {.kind = FindingKind::message_order,
           .rank = channel.receiver,
           .entry = others[i].entry,
           .reason = fmt::format("receives the {}, but the next that rank {} sends on this channel "
                                 "(its entry {}) are the {}",
                                 words_for(others[i].message), channel.sender, posts[i].entry,
                                 words_for(posts[i].message))});
      break;  // all that follow on the channel are in another order too
    }
  }
}

}  // namespace tessera
