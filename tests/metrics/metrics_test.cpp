#include "metrics/metrics.h"

#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/metrics_csv.h"
#include "metrics/metrics_writer.h"
#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StepMetrics sample_metrics(int64_t step) {
  StepMetrics metrics{.step = step, .loss = 0.1 * static_cast<double>(step), .tokens = 64 * step};
  metrics.lr = 3e-4;
  metrics.memory_bytes = 123456789012;
  if (step % 2 == 0) metrics.held_out_loss = 1.0 / 3;
  return metrics;
}

TEST(Metrics, NoTwoOfTheTableShareAName) {
  std::set<std::string_view> names, tags, labels;
  for (const Metric& metric : all_metrics()) {
    names.insert(metric.name);
    tags.insert(metric.tag);
    labels.insert(metric.label);
  }
  for (const auto& words : {names, tags, labels}) EXPECT_EQ(words.size(), all_metrics().size());
}

TEST(Metrics, LinesReadBackTheSame) {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  StepMetrics dense = sample_metrics(1);
  StepMetrics mixture = sample_metrics(2);
  mixture.flops = 1.25e21;
  mixture.balance_loss = 0;
  mixture.expert_load = 1.5;
  mixture.update_rms = 0.19;
  mixture.orthogonality_error = 0.25;
  mixture.grad_norm = kNan;
  {
    MetricsFile file(path, 0);
    file.append(dense);
    file.append(mixture);
  }
  const auto read = read_metrics(path);
  ASSERT_EQ(read.size(), 2U);
  for (const Metric& metric : all_metrics()) {
    EXPECT_EQ(metric.value(read[0]), metric.value(dense)) << metric.name;
    if (metric.name != "grad_norm") {
      EXPECT_EQ(metric.value(read[1]), metric.value(mixture)) << metric.name;
    }
  }
  EXPECT_TRUE(std::isnan(read[1].grad_norm));
  EXPECT_THAT(read_file(path), HasSubstr("\"grad_norm\":null"));
  EXPECT_THAT(read_file(path), HasSubstr("\"memory_bytes\":123456789012,"));
}

TEST(Metrics, LinesBeyondTheResumedStepAreRemovedAndTheOthersStayAsTheyAre) {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 5; ++step) file.append(sample_metrics(step));
  }
  // A number of another version stays, a torn line does not.
  std::string text = read_file(path);
  text.insert(1, "\"later\":[1, 2], ");
  write_file(path, text + "{\"step\":6,\"lo");
  { MetricsFile(path, 3).append(sample_metrics(4)); }
  const auto metrics = read_metrics(path);
  ASSERT_EQ(metrics.size(), 4U);
  EXPECT_EQ(metrics[2].loss, 0.1 * 3);
  EXPECT_EQ(metrics[3].step, 4);
  EXPECT_THAT(read_file(path), HasSubstr("\"later\":[1, 2], "));
}

TEST(Metrics, LinesThatCouldNotBeWrittenAreWrittenLaterOrAtTheNextStart) {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  std::string unsaved;
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 2; ++step) file.append(sample_metrics(step));
    file.sync();
    EXPECT_EQ(file.unsaved(), "");
    const auto room = static_cast<rlim_t>(fs::file_size(path) + 10);
    {
      const FileSizeLimit limit(room);
      EXPECT_THAT(error_of([&] { file.append(sample_metrics(3)); }), HasSubstr("cannot write"));
      EXPECT_EQ(read_metrics(path).size(), 2U);
    }
    file.append(sample_metrics(4));  // and the one before
    EXPECT_EQ(read_metrics(path).size(), 4U);
    const FileSizeLimit limit(room);
    EXPECT_THAT(error_of([&] { file.append(sample_metrics(5)); }), HasSubstr("cannot write"));
    EXPECT_THAT(error_of([&] { file.sync(); }), HasSubstr("cannot write"));
    unsaved = file.unsaved();
  }
  // A power cut may leave anything of the lines that were not on the disk.
  const std::string text = read_file(path);
  write_file(path, text.substr(0, text.find("{\"step\":3")) + std::string(9, '\0') + "\n");
  { MetricsFile(path, 5, unsaved).append(sample_metrics(6)); }
  const auto steps = read_metrics(path);
  ASSERT_EQ(steps.size(), 6U);
  for (int64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(steps[static_cast<size_t>(step - 1)].loss, sample_metrics(step).loss);
  }
  write_file(path, text.substr(0, 9) + "\n" + text);
  EXPECT_THAT(error_of([&] { MetricsFile(path, 4); }),
              AllOf(HasSubstr("metrics.jsonl:1: not a line"), HasSubstr("move the file away")));
  fs::rename(path, folder / "away.jsonl");
  MetricsFile(path, 4).append(sample_metrics(5));
  EXPECT_EQ(read_metrics(path).size(), 1U);
}

TEST(Metrics, ALineThatIsNotValidIsNamed) {
  const TemporaryFolder folder;
  for (const char* line : {"{\"step\": }\n", "[]\n", "{}\n", "{\"step\":1.5}\n",
                           "{\"step\":\"1\"}\n", "{\"step\":1}\n", "\n", "\"step\"\n"}) {
    const fs::path path = folder.write("metrics.jsonl", line);
    EXPECT_THAT(error_of([&] { read_metrics(path); }), HasSubstr("metrics.jsonl:1: not a line"))
        << line;
  }
}

TEST(Metrics, AMemberThatIsMissingOrSomethingElseIsNamed) {
  const TemporaryFolder folder;
  std::string good;
  {
    MetricsFile file(folder / "good.jsonl", 0);
    StepMetrics metrics = sample_metrics(1);
    metrics.sources = {{.name = "web", .tokens = 64, .epochs = 0.5}};
    file.append(metrics);
  }
  good = read_file(folder / "good.jsonl");
  const auto message = [&](const std::string& found, const std::string& replacement) {
    std::string bad = good;
    bad.replace(bad.find(found), found.size(), replacement);
    const fs::path path = folder.write("metrics.jsonl", good + bad);
    return error_of([&] { read_metrics(path); });
  };
  const auto says = [](const std::string& text) {
    return ::testing::AllOf(HasSubstr("metrics.jsonl:2: not a line of metrics: " + text),
                            ::testing::Not(HasSubstr("json.exception")));
  };
  EXPECT_THAT(message("\"step\":", "\"stop\":"), says("it has no member step"));
  EXPECT_THAT(message("\"lr\":", "\"rl\":"), says("it has no member lr"));
  EXPECT_THAT(message("\"tokens\":64,\"tok", "\"tok"), says("it has no member tokens"));
  EXPECT_THAT(message("\"loss\":0.1", "\"loss\":\"x\""), says("loss is \"x\", expected a number"));
  EXPECT_THAT(message("\"tokens\":64,\"tok", "\"tokens\":6.4,\"tok"),
              says("tokens is 6.4, expected a whole number"));
  EXPECT_THAT(message(",\"epochs\":0.5", ""), says("it has no member epochs"));
  EXPECT_THAT(message(good, "[1]\n"), says("found [1], expected an object"));
}

TEST(Csv, HasAColumnForThePhaseOfARunThatHasSome) {
  StepMetrics metrics = sample_metrics(2);
  metrics.phase = 3;
  metrics.phase_name = "long";
  EXPECT_THAT(csv_header(true), ::testing::EndsWith(",held_out_loss,phase\r\n"));
  EXPECT_THAT(csv_line(metrics, true), ::testing::EndsWith(",0.3333333333333333,3\r\n"));
  EXPECT_EQ(csv_line(metrics), csv_line(sample_metrics(2)));
}

TEST(Metrics, OfPhasesReadBackTheSame) {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  StepMetrics metrics = sample_metrics(1);
  {
    MetricsFile file(path, 0);
    file.append(metrics);
    metrics.step = 2;
    metrics.phase = 2;
    metrics.phase_name = "a \"long\" one";
    file.append(metrics);
  }
  const std::vector<StepMetrics> read = read_metrics(path);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].phase, std::nullopt);
  EXPECT_EQ(read[0].phase_name, "");
  EXPECT_EQ(read[1].phase, 2);
  EXPECT_EQ(read[1].phase_name, "a \"long\" one");
  const std::string text = read_file(path);
  EXPECT_EQ(text.find("phase"), text.find("phase", text.find('\n'))) << "only where there is one";
}

TEST(Csv, HasAColumnForEachMetricAndReadsBackTheSame) {
  StepMetrics metrics = sample_metrics(7);
  metrics.grad_norm = kNan;
  metrics.seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(csv_header(),
            "step,loss,grad_norm,lr,tokens,flops,tokens_per_second,mfu,seconds,memory_bytes,"
            "balance_loss,router_z_loss,expert_load,skipped,update_rms,orthogonality_error,"
            "held_out_loss\r\n");
  EXPECT_EQ(csv_line(metrics),
            "7,0.7000000000000001,nan,0.0003,448,,0,0,inf,123456789012,,,,,,,\r\n");
  EXPECT_THAT(csv_line(sample_metrics(2)), ::testing::EndsWith(",,,,,,0.3333333333333333\r\n"));
}

class WriterTest : public ::testing::Test {
 protected:
  RunSection run(bool csv, bool tensorboard) const {
    return {.directory = folder_.path().string(), .tensorboard = tensorboard, .csv = csv};
  }
  std::string csv() const { return read_file(folder_ / "metrics.csv"); }

  TemporaryFolder folder_;
};

TEST_F(WriterTest, AResumedRunsCsvIsThatOfARunAtOnce) {
  std::string whole = csv_header();
  for (int64_t step = 1; step <= 6; ++step) whole += csv_line(sample_metrics(step));
  {
    MetricsWriter writer(run(true, false), {.last_step = 0}, Logger());
    for (int64_t step = 1; step <= 5; ++step) writer.append(sample_metrics(step));
  }
  write_file(folder_ / "metrics.csv", csv() + "6,0.1");  // killed within a line
  {
    MetricsWriter writer(run(true, false), {.last_step = 3}, Logger());
    for (int64_t step = 4; step <= 6; ++step) writer.append(sample_metrics(step));
  }
  EXPECT_EQ(csv(), whole);
  EXPECT_FALSE(fs::exists(folder_ / "tensorboard"));
}

TEST_F(WriterTest, ACsvThatIsAskedForLaterHoldsTheEarlierStepsToo) {
  {
    MetricsWriter writer(run(false, true), {.last_step = 0}, Logger());
    writer.append(sample_metrics(1));
    writer.append(sample_metrics(2));
  }
  EXPECT_FALSE(fs::exists(folder_ / "metrics.csv"));
  EXPECT_TRUE(fs::exists(folder_ / "tensorboard"));
  MetricsWriter(run(true, false), {.last_step = 2}, Logger()).append(sample_metrics(3));
  EXPECT_EQ(csv(), csv_header() + csv_line(sample_metrics(1)) + csv_line(sample_metrics(2)) +
                       csv_line(sample_metrics(3)));
}

TEST_F(WriterTest, ACsvThatIsNoLongerWantedKeepsNoStepThatWasDiscarded) {
  {
    MetricsWriter writer(run(true, false), {.last_step = 0}, Logger());
    for (int64_t step = 1; step <= 3; ++step) writer.append(sample_metrics(step));
  }
  MetricsWriter(run(false, false), {.last_step = 1}, Logger()).append(sample_metrics(2));
  EXPECT_EQ(csv(), csv_header() + csv_line(sample_metrics(1)));
}

TEST_F(WriterTest, ARunThatStartsAnewKeepsNothing) {
  { MetricsWriter(run(true, false), {.last_step = 0}, Logger()).append(sample_metrics(1)); }
  const MetricsWriter writer(run(true, false), {.last_step = 0}, Logger());
  EXPECT_EQ(csv(), csv_header());
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), "");
}

}  // namespace
}  // namespace tessera
