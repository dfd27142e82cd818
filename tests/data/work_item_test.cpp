#include "data/shards/work_item.h"

#include <gtest/gtest.h>

#include "data/support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path write_item(const TemporaryFolder& folder, DType dtype) {
  const fs::path path = folder / "item-00000000";
  WorkItemWriter writer(path, dtype);
  writer.append(std::vector<int32_t>{1, 2, 3, 40'000});
  writer.append(std::vector<int32_t>{5});
  ReadStatistics statistics;
  statistics.documents = 2;
  statistics.bad_lines = 1;
  statistics.first_bad_lines.push_back({0, 17, "not JSON"});
  writer.commit(statistics, /*begin=*/3, /*end=*/90);
  return path;
}

TEST(WorkItem, GivesItsCounts) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::u16, DType::i32}) {
    const auto read = read_work_item(write_item(folder, dtype), dtype);
    ASSERT_TRUE(read.has_value());
    const WorkItemSummary& summary = *read;
    EXPECT_EQ(summary.tokens, 5);
    EXPECT_EQ(summary.begin, 3);
    EXPECT_EQ(summary.end, 90);
    EXPECT_EQ(summary.statistics.documents, 2);
    ASSERT_EQ(summary.statistics.first_bad_lines.size(), 1U);
    EXPECT_EQ(summary.statistics.first_bad_lines[0].reason, "not JSON");
  }
}

TEST(WorkItem, AnyFlippedBitAndAnyCutIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const fs::path path = write_item(folder, DType::u16);
  const std::string good = read_file(path);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    write_quickly(path, bad);
    ASSERT_THAT(error_of([&] { read_work_item(path, DType::u16); }),
                AllOf(HasSubstr(path.string()), HasSubstr("is damaged; delete it and run prepare")))
        << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    write_quickly(path, std::string_view(good).substr(0, size));
    ASSERT_THAT(error_of([&] { read_work_item(path, DType::u16); }), HasSubstr(path.string()));
  }
}

}  // namespace
}  // namespace tessera
