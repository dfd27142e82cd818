// Which samples a run trains on, written down while its layout changes.
#include <map>
#include <mutex>
#include <set>

#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

/// The rows of a run, in the order in which one rank would read them.
class Ledger {
 public:
  explicit Ledger(const RunConfig& config, int ranks) : mesh_(mesh_of(config, ranks)) {}

  auto note() {
    return [this](int rank, int64_t step, std::span<const Batch> batches) {
      const std::scoped_lock lock(mutex_);
      const auto part = static_cast<int64_t>(data_rank({mesh_, rank}));
      for (size_t i = 0; i < batches.size(); ++i) {
        const Batch& batch = batches[i];
        for (int64_t row = 0; row < batch.rows; ++row) {
          const auto first = batch.tokens.begin() + row * batch.context;
          const std::vector<int32_t> tokens(first, first + batch.context);
          const auto place =
              rows_.try_emplace({step, static_cast<int64_t>(i) * data_ranks(mesh_) * batch.rows +
                                           part * batch.rows + row},
                                tokens);
          // Ranks that share a sequence read the same.
          EXPECT_EQ(place.first->second, tokens) << "rank " << rank << ", step " << step;
        }
      }
    };
  }
  std::vector<std::vector<int32_t>> rows() const {
    std::vector<std::vector<int32_t>> rows;
    for (const auto& [place, tokens] : rows_) rows.push_back(tokens);
    return rows;
  }

 private:
  Mesh mesh_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> rows_;  // by step and row of it
};

class LedgerOfSamples : public Ranks {
 protected:
  static constexpr int64_t kSteps = 24;

  /// Numbers, so that no two samples are equal.
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    std::string text;
    for (int number = 0; number < 1000; ++number) text += fmt::format("{:05}\n", number);
    testing::prepare_text(folder_->path(), text);
  }
  static std::vector<std::vector<int32_t>> trained_on(const std::string& run, int ranks,
                                                      std::vector<std::string> keys, bool resume) {
    keys.push_back(fmt::format("train.steps={}", kSteps));
    const RunConfig of_run = config(run, keys);
    Ledger ledger(resolve(of_run), ranks);
    train_on(ranks, of_run, {.resume = resume, .on_batches = ledger.note()});
    return ledger.rows();
  }
};

TEST_F(LedgerOfSamples, HasEachOnceWhileTheLayoutChangesTwice) {
  const auto whole = trained_on("whole", 1, {}, false);
  ASSERT_EQ(whole.size(), static_cast<size_t>(8 * kSteps));
  std::vector<std::vector<int32_t>> parts;
  const auto add = [&](const std::vector<std::vector<int32_t>>& rows) {
    parts.insert(parts.end(), rows.begin(), rows.end());
  };
  add(trained_on("parts", 4, {"parallel.tensor=2", "train.stop_after=7"}, false));
  EXPECT_EQ(parts.size(), 7U * 8);
  add(trained_on("parts", 8, {"train.micro_batch=1", "train.stop_after=15"}, true));
  EXPECT_EQ(parts.size(), 15U * 8);
  add(trained_on("parts", 4, {"parallel.context=2", "parallel.tensor=2"}, true));
  EXPECT_TRUE(parts == whole) << "another order, or other samples";

  const TrainingData data = open_data(resolve(config("whole")).data);
  const auto samples = static_cast<size_t>(data.sources.at(0).instances->instances(Split::train));
  ASSERT_LT(samples, whole.size()) << "the run ends within its first epoch";
  const std::set<std::vector<int32_t>> distinct(
      parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(samples));
  EXPECT_EQ(distinct.size(), samples) << "a sample came twice before each came once";
}

}  // namespace
}  // namespace tessera
