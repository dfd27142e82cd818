#include "pipeline/validate.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/checks.h"
#include "pipeline/clock.h"

namespace tessera {
namespace {

/// Returns what a stuck rank waits for, in words.
std::string wait_words(const PipelineSchedule& schedule, const StuckRank& stuck) {
  const auto& list = schedule.ranks[static_cast<size_t>(stuck.rank)];
  const auto& wait = std::get<MessageEntry>(list[stuck.entry]);
  return fmt::format("{} {}",
                     wait.call == MessageCall::wait_send ? "that the other side takes the" : "for",
                     words_for(wait.message));
}

/// Returns the rank on the other side of the message that a stuck rank waits for.
int other_side(const PipelineSchedule& schedule, const StuckRank& stuck) {
  const auto& list = schedule.ranks[static_cast<size_t>(stuck.rank)];
  const auto& wait = std::get<MessageEntry>(list[stuck.entry]);
  const Channel channel = schedule.placement.channel(wait.message);
  return wait.call == MessageCall::wait_send ? channel.receiver : channel.sender;
}

}  // namespace

std::string ScheduleFinding::text() const {
  if (rank == kNone) return reason;
  if (entry == kNone) return fmt::format("rank {}: {}", rank, reason);
  return fmt::format("rank {}, entry {}: {}", rank, entry, reason);
}

void check_placement(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings) {
  const ChunkPlacement& placement = schedule.placement;
  const auto add = [&](int rank, std::string reason) {
    findings.push_back({.kind = FindingKind::placement, .rank = rank, .reason = std::move(reason)});
  };
  if (schedule.micro_batches < 1) {
    add(ScheduleFinding::kNone,
        fmt::format("found {} micro-batches, expected at least 1", schedule.micro_batches));
  }
  if (static_cast<int>(schedule.ranks.size()) != placement.ranks) {
    add(ScheduleFinding::kNone, fmt::format("found {} lists, expected one for each of {} ranks",
                                            schedule.ranks.size(), placement.ranks));
  }
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    if (placement.rank(chunk) >= 0 && placement.rank(chunk) < placement.ranks) continue;
    add(ScheduleFinding::kNone, fmt::format("chunk {} is on rank {}, expected 0 to {}", chunk,
                                            placement.rank(chunk), placement.ranks - 1));
  }
  for (int rank = 0; rank < placement.ranks; ++rank) {
    if (!placement.chunks_of(rank).empty()) continue;
    add(rank, fmt::format("it has none of the {} chunks; take fewer ranks or more chunks",
                          placement.chunks()));
  }
}

void check_deadlock(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings) {
  const std::vector<StuckRank> all = stuck_ranks(schedule);
  for (const StuckRank& stuck : all) {
    const int other = other_side(schedule, stuck);
    const auto there =
        std::ranges::find_if(all, [&](const StuckRank& rank) { return rank.rank == other; });
    const std::string reason =
        there == all.end()
            ? fmt::format("it waits {}, which rank {} never posts", wait_words(schedule, stuck),
                          other)
            : fmt::format("it waits {}; rank {}, which is to post that, waits at entry {} {}",
                          wait_words(schedule, stuck), other, there->entry,
                          wait_words(schedule, *there));
    findings.push_back({.kind = FindingKind::deadlock,
                        .rank = stuck.rank,
                        .entry = static_cast<int>(stuck.entry),
                        .reason = reason});
  }
}

std::vector<ScheduleFinding> validate(const PipelineSchedule& schedule) {
  std::vector<ScheduleFinding> findings;
  check_placement(schedule, findings);
  if (findings.empty()) check_actions(schedule, findings);
  if (!findings.empty()) return findings;
  check_order(schedule, findings);
  check_messages(schedule, findings);
  if (findings.empty()) check_message_order(schedule, findings);
  if (findings.empty()) check_deadlock(schedule, findings);
  return findings;
}

void require_valid(const PipelineSchedule& schedule, const std::string& origin) {
  const std::vector<ScheduleFinding> findings = validate(schedule);
  if (findings.empty()) return;
  constexpr size_t kShown = 5;
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(findings.size(), kShown); ++i) {
    lines.push_back(findings[i].text());
  }
  if (findings.size() > kShown) {
    lines.push_back(fmt::format("and {} more", findings.size() - kShown));
  }
  throw Error("{}: this pipeline schedule cannot run:\n  {}", origin, join(lines, "\n  "));
}

}  // namespace tessera
