// Schedules beside those of an independent program, tests/reference/pipeline_schedules.py, which
// says what tests/fixtures/pipeline holds.

#include <algorithm>
#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/words.h"
#include "pipeline/clock.h"
#include "pipeline/schedule_file.h"
#include "pipeline/validate.h"
#include "sample_schedules.h"

namespace tessera {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

nlohmann::json fixture(const char* name) {
  return nlohmann::json::parse(
      read_file(fs::path(TESSERA_SOURCE) / "tests/fixtures/pipeline" / name));
}

/// A row of the table.
class FixtureRow {
 public:
  FixtureRow(const nlohmann::json& columns, const nlohmann::json& values) {
    for (size_t i = 0; i < columns.size(); ++i) members_[columns[i]] = values[i];
  }
  const nlohmann::json& operator[](const char* name) const { return members_.at(name); }
  int number(const char* name) const { return (*this)[name].get<int>(); }

  ScheduleKind kind() const {
    return from_word<ScheduleKind>((*this)["schedule"].get<std::string>());
  }
  PipelineShape shape() const {
    PipelineShape shape{number("pp"), number("pp") * number("v"), number("m"), {}};
    if (!(*this)["nc"].is_null()) shape.consecutive_micro_batches = number("nc");
    return shape;
  }
  ScheduleTimes times() const {
    return {.chunks = {{.forward = (*this)["tF"],
                        .input_gradients = (*this)["tI"],
                        .weight_gradients = (*this)["tW"]}},
            .latency = (*this)["tComm"]};
  }
  /// The row itself, for messages of failures.
  std::string text() const { return nlohmann::json(members_).dump(); }

 private:
  std::map<std::string, nlohmann::json> members_;
};

/// The largest share of a rank's busy time in which it idles between its first and its last action.
double idle_within_ranks(const ScheduleFigures& figures) {
  double idle = 0;
  for (const RankFigures& rank : figures.ranks) {
    const double span = rank.actions.back().end - rank.actions.front().start;
    idle = std::max(idle, (span - rank.busy) / rank.busy);
  }
  return idle;
}

void expect_row(const PipelineSchedule& schedule, const FixtureRow& row) {
  SCOPED_TRACE(row.text());
  ASSERT_THAT(validate(schedule), IsEmpty());
  const ScheduleFigures figures = measure(schedule, row.times());
  EXPECT_NEAR(figures.makespan, row["makespan"].get<double>(), 1e-9);
  EXPECT_NEAR(figures.bubble, row["bubble"].get<double>(), 1e-8);
  EXPECT_NEAR(idle_within_ranks(figures), row["span_bubble"].get<double>(), 1e-8);
  std::vector<int> peaks, before_gradients;
  int actions = 0, sends = 0;
  for (size_t rank = 0; rank < figures.ranks.size(); ++rank) {
    peaks.push_back(figures.ranks[rank].peak_in_flight);
    before_gradients.push_back(figures.ranks[rank].peak_before_gradients);
    actions += static_cast<int>(figures.ranks[rank].actions.size());
    for (const ScheduleEntry& entry : schedule.ranks[rank]) {
      const auto* call = std::get_if<MessageEntry>(&entry);
      sends += call != nullptr && call->call == MessageCall::post_send ? 1 : 0;
    }
  }
  EXPECT_EQ(peaks, row["peak"].get<std::vector<int>>());
  EXPECT_EQ(before_gradients, row["peak_input"].get<std::vector<int>>());
  EXPECT_EQ(actions, row.number("actions"));
  EXPECT_EQ(sends, row.number("messages"));
}

/// Makes one block of each forward and backward that DualPipeV overlaps: both inputs are awaited
/// before the block, and both results are sent at its end.
PipelineSchedule with_blocks(PipelineSchedule schedule) {
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    auto& list = schedule.ranks[rank];
    const bool last_rank = rank + 1 == schedule.ranks.size();
    bool first_pair = true;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto* forward = std::get_if<ChunkAction>(&list[i]);
      if (forward == nullptr || forward->kind != ActionKind::forward) continue;
      const auto next = std::find_if(
          list.begin() + static_cast<std::ptrdiff_t>(i) + 1, list.end(),
          [](const ScheduleEntry& entry) { return std::holds_alternative<ChunkAction>(entry); });
      if (next == list.end() || std::get<ChunkAction>(*next).kind != ActionKind::backward) continue;
      // On the last rank DeepSeek does not overlap the first pair.
      if (!(std::exchange(first_pair, false) && last_rank)) {
        const auto between = list.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        // Entries between the two: the forward's send goes behind the pair, waits before it.
        const auto waits = std::stable_partition(between, next, [](const ScheduleEntry& entry) {
          return std::get<MessageEntry>(entry).call != MessageCall::post_send;
        });
        std::rotate(waits, next, next + 1);
        std::rotate(list.begin() + static_cast<std::ptrdiff_t>(i), between, waits);
      }
      i = static_cast<size_t>(next - list.begin());
    }
  }
  return schedule;
}

TEST(PipelineFixture, HasTheSameFigures) {
  const nlohmann::json table = fixture("table.json");
  size_t compared = 0;
  for (const nlohmann::json& values : table["rows"]) {
    const FixtureRow row(table["columns"], values);
    const PipelineSchedule schedule = generate(row.kind(), row.shape());
    expect_row(row["mode"] == "fused" ? with_blocks(schedule) : schedule, row);
    ++compared;
  }
  EXPECT_EQ(compared, 270U);
}

/// The lists of a case of wrong.json.
ActionLists wrong_lists(const nlohmann::json& json) {
  std::string text = "tessera pipeline schedule 1\n";
  // An unknown micro-batch is refused by the file already: read the case with room for it.
  text += "micro-batches 100\nchunks";
  for (const int rank : json["chunks"]) text += " " + std::to_string(rank);
  int rank = 0;
  for (const std::string list : json["ranks"]) {
    text += "\nrank " + std::to_string(rank++) + ": " + list;
  }
  ActionLists lists = parse_schedule(text, json["name"]);
  lists.micro_batches = json["micro_batches"];
  return lists;
}

TEST(PipelineFixture, RefusesTheWrongListsForTheirReason) {
  const std::map<std::string, FindingKind> kinds{{"missing", FindingKind::missing},
                                                 {"duplicate", FindingKind::repeated},
                                                 {"mixed-backward", FindingKind::mixed_backward},
                                                 {"dependency", FindingKind::order},
                                                 {"wrong-rank", FindingKind::wrong_rank},
                                                 {"unknown", FindingKind::unknown},
                                                 {"fifo", FindingKind::message_order},
                                                 {"deadlock", FindingKind::deadlock}};
  size_t compared = 0;
  const nlohmann::json wrong = fixture("wrong.json");
  for (const nlohmann::json& json : wrong["cases"]) {
    SCOPED_TRACE(json["name"].get<std::string>() + ": " + json["reason"].get<std::string>());
    ActionLists lists = wrong_lists(json);
    lists.placement.ranks = static_cast<int>(lists.ranks.size());
    PipelineSchedule schedule = place_messages(lists);
    if (json["mode"] == "blocking") schedule = testing::with_blocking_sends(schedule);
    std::vector<FindingKind> found;
    for (const ScheduleFinding& finding : validate(schedule)) found.push_back(finding.kind);
    ++compared;
    // Here activations and gradients have a channel each, so a list that is wrong on one is right.
    if (json["channels"] == 1) {
      EXPECT_THAT(found, IsEmpty());
      continue;
    }
    ASSERT_THAT(found, Not(IsEmpty()));
    EXPECT_EQ(found.front(), kinds.at(json["code"]));
  }
  EXPECT_EQ(compared, 14U);
}

}  // namespace
}  // namespace tessera
