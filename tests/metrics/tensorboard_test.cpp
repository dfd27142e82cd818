#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "metrics/metrics_writer.h"
#include "metrics/tensorboard/event.h"
#include "metrics/tensorboard/events_file.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

fs::path fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests/fixtures/tensorboard" / name;
}

/// The numbers of an event of the fixture's description.
std::vector<Scalar> scalars_of(const Json& event) {
  std::vector<Scalar> scalars;
  for (const Json& scalar : event.at("scalars")) scalars.push_back({scalar.at(0), scalar.at(1)});
  return scalars;
}

/// The payloads of all records; fails where a checksum is wrong or the last record is torn.
std::vector<std::string> payloads(const std::string& bytes) {
  std::vector<std::string> result;
  for (size_t at = 0; at < bytes.size(); at += tfrecord(result.back()).size()) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    result.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(bytes.substr(at, length + 16), tfrecord(result.back()));
  }
  return result;
}

/// An event with another wall time: its first member, a double after one byte.
std::string at_time(std::string event, double wall_time) {
  std::memcpy(event.data() + 1, &wall_time, sizeof(wall_time));
  return event;
}

std::vector<fs::path> files(const fs::path& folder) {
  std::vector<fs::path> result;
  for (const auto& entry : fs::directory_iterator(folder)) result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

TEST(TensorBoard, TheChecksumIsThatOfTheStandard) {
  // RFC 3720, appendix B.4, and the usual check value.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising;
  for (char byte = 0; byte < 32; ++byte) rising += byte;
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(TensorBoard, FilesAreThoseOfThePythonPackageByteForByte) {
  // One run's two files; of the first, the package's reader drops what the second declares void.
  const Json expected = Json::parse(read_file(fixture("expected.json")));
  ASSERT_EQ(expected.at("files").size(), 2U);
  const TemporaryFolder folder;
  for (const auto& [name, events] : expected.at("files").items()) {
    {
      EventsFile file(folder.path(), events.at(1).at("step"));
      for (size_t i = 2; i < events.size(); ++i) {
        file.append(events[i].at("step"), scalars_of(events[i]));
      }
    }
    std::string bytes;
    const auto written = payloads(read_file(files(folder.path()).back()));
    ASSERT_EQ(written.size(), events.size());
    for (size_t i = 0; i < events.size(); ++i) {
      bytes += tfrecord(at_time(written[i], events[i].at("wall_time")));
    }
    EXPECT_EQ(bytes, read_file(fixture(name))) << name;
  }
}

TEST(TensorBoard, AResumedRunDeclaresVoidWhatFollowsItsCheckpoint) {
  const TemporaryFolder folder;
  const RunSection run{.directory = folder.path().string()};
  for (const int64_t last_step : {0, 3}) {
    MetricsWriter writer(run, {.last_step = last_step}, Logger());
    for (int64_t step = last_step + 1; step <= last_step + 4; ++step) writer.append({.step = step});
    const auto events = payloads(read_file(files(folder / "tensorboard").back()));
    ASSERT_EQ(events.size(), 6U);
    EXPECT_EQ(at_time(events[1], 5), start_event(5, last_step + 1));
  }
}

/// The last step whose numbers count; 0 if there is none.
int64_t last_step(const fs::path& folder) {
  const auto steps = recorded_steps(folder);
  return steps.empty() ? 0 : steps.rbegin()->first;
}

TEST(TensorBoard, TheStepsThatCountAreFound) {
  const TemporaryFolder folder;
  EXPECT_EQ(last_step(folder / "none"), 0);
  EXPECT_EQ(last_step(fixture("")), int64_t{1} << 40) << "as the package reads its own";
  for (const int64_t first : {1, 4}) {
    EventsFile file(folder.path(), first);
    EXPECT_EQ(last_step(folder.path()), first - 1);
    const Scalar scalars[] = {{"train/loss", static_cast<double>(first)}};
    for (int64_t step = first; step < first + 5; ++step) file.append(step, scalars);
    EXPECT_EQ(last_step(folder.path()), first + 4);
    EXPECT_EQ(recorded_steps(folder.path()).at(first + 1), hash(summary_message(scalars)));
  }
  const fs::path last = files(folder.path()).back();
  fs::resize_file(last, fs::file_size(last) - 3);  // as a full disk or a kill leaves it
  EXPECT_EQ(last_step(folder.path()), 7);
}

/// A run that did six steps with events, is resumed after three without, and does others.
class DiscardedSteps : public ::testing::Test {
 protected:
  DiscardedSteps() {
    write(0, 6, 1);
    run_.tensorboard = false;
  }
  /// Writes the steps after one up to another, with so large a loss.
  void write(int64_t after, int64_t until, double loss) {
    MetricsWriter writer(run_, {.last_step = after}, Logger());
    for (int64_t step = after + 1; step <= until; ++step) {
      writer.append({.step = step, .loss = loss});
    }
  }
  fs::path events() const { return folder_ / "tensorboard"; }

  TemporaryFolder folder_;
  RunSection run_{.directory = folder_.path().string()};
};

TEST_F(DiscardedSteps, AreNotShownThoughTheResumeWritesNoEvents) {
  write(3, 5, 2);
  EXPECT_EQ(last_step(events()), 3);
  const size_t files_before = files(events()).size();
  write(5, 6, 2);
  EXPECT_EQ(files(events()).size(), files_before) << "nothing of it was void";
}

TEST_F(DiscardedSteps, AreReplacedByALaterResumeIfTheOneBeforeCouldNotWriteEvents) {
  fs::rename(events(), folder_ / "away");
  write(3, 5, 2);
  fs::rename(folder_ / "away", events());
  EXPECT_EQ(last_step(events()), 6);
  run_.tensorboard = true;
  write(5, 7, 3);
  const auto recorded = recorded_steps(events());
  const auto steps = read_metrics(folder_ / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 7U);
  EXPECT_EQ(recorded.size(), 7U);
  EXPECT_EQ(recorded.at(3), recorded.at(1)) << "before the resume";
  EXPECT_EQ(recorded.at(5), recorded.at(4));
  EXPECT_NE(recorded.at(4), recorded.at(3)) << "that of the discarded step";
}

TEST_F(DiscardedSteps, AreCompletedWhereNoStepFollowsAndNothingIsWrittenTwice) {
  run_.tensorboard = true;
  for (int i = 0; i < 2; ++i) {
    const MetricsWriter writer(run_, {.last_step = 4, .steps_follow = false}, Logger());
    EXPECT_EQ(last_step(events()), 4);
    EXPECT_EQ(files(events()).size(), 2U);
  }
}

TEST(TensorBoard, AResumeAddsTheStepsThatCouldNotBeWritten) {
  const TemporaryFolder folder;
  const RunSection run{.directory = folder.path().string()};
  folder.write("tensorboard", "a file in the way");
  {
    ::testing::internal::CaptureStderr();
    MetricsWriter writer(run, {.last_step = 0}, Logger());
    for (int64_t step = 1; step <= 4; ++step) writer.append({.step = step});
    const std::string warned = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(warned, HasSubstr("TensorBoard's events are written no more"));
    EXPECT_EQ(std::ranges::count(warned, '\n'), 1) << warned;
  }
  EXPECT_EQ(read_metrics(folder / "metrics.jsonl").size(), 4U);
  fs::remove(folder / "tensorboard");
  MetricsWriter writer(run, {.last_step = 3}, Logger());
  const auto events = payloads(read_file(files(folder / "tensorboard").back()));
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(at_time(events[1], 5), start_event(5, 1));
  EXPECT_EQ(last_step(folder / "tensorboard"), 3);
}

TEST(TensorBoard, EachPartOfARunHasAFileThatSortsAfterTheLast) {
  const TemporaryFolder folder;
  std::vector<fs::path> in_order;
  for (int64_t part = 0; part < 3; ++part) {
    EventsFile file(folder.path(), 10 * part + 1);
    const Scalar scalars[] = {{"train/loss", 1.5}};
    file.append(10 * part + 1, scalars);
    for (const fs::path& path : files(folder.path())) {
      if (std::find(in_order.begin(), in_order.end(), path) == in_order.end()) {
        in_order.push_back(path);
      }
    }
  }
  ASSERT_EQ(in_order.size(), 3U);
  EXPECT_EQ(files(folder.path()), in_order);
  for (const fs::path& path : in_order) {
    const auto events = payloads(read_file(path));
    ASSERT_EQ(events.size(), 3U);
    EXPECT_THAT(events[0], HasSubstr("brain.Event:2"));
    EXPECT_THAT(events[2], HasSubstr("train/loss"));
    EXPECT_THAT(path.filename().string(), ::testing::StartsWith("events.out.tfevents."));
  }
}

TEST(TensorBoard, AStepIsOneRecordWithTheNumbersThatItHas) {
  const TemporaryFolder folder;
  {
    MetricsWriter writer({.directory = folder.path().string()}, {.last_step = 0}, Logger());
    StepMetrics metrics{.step = 1, .loss = 2};
    writer.append(metrics);
    metrics.expert_load = 1.25;
    metrics.sources = {{.name = "web", .tokens = 64, .epochs = 0.5, .held_out_loss = 3}};
    writer.append(metrics);
  }
  const auto paths = files(folder / "tensorboard");
  ASSERT_EQ(paths.size(), 1U);
  const auto events = payloads(read_file(paths[0]));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_THAT(events[2], HasSubstr("train/loss"));
  EXPECT_THAT(events[2], ::testing::Not(HasSubstr("router/")));
  EXPECT_THAT(events[3], HasSubstr("router/expert_load"));
  EXPECT_THAT(events[3], HasSubstr("sources/web/tokens"));
  EXPECT_THAT(events[3], HasSubstr("sources/web/epochs"));
  EXPECT_THAT(events[3], HasSubstr("sources/web/held_out_loss"));
}

}  // namespace
}  // namespace tessera
