#include "comm/mpi/most_rows.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(MostRows, CountTheRankThatReceivesTheMost) {
  const std::vector<int64_t> rows{1, 0, 5,   //
                                  0, 2, 6,   //
                                  1, 1, 7};  // rank 2 sends 9 and receives 18
  EXPECT_EQ(most_rows(rows, 3), 18);
}

TEST(MostRows, CountTheRankThatSendsTheMost) {
  const std::vector<int64_t> rows{1, 0, 1,  //
                                  5, 6, 7,  // rank 1 sends 18 and receives 8
                                  0, 2, 1};
  EXPECT_EQ(most_rows(rows, 3), 18);
}

TEST(MostRows, AreThoseOfOneRankOrNone) {
  EXPECT_EQ(most_rows(std::vector<int64_t>{4}, 1), 4);
  EXPECT_EQ(most_rows(std::vector<int64_t>(9), 3), 0);
}

}  // namespace
}  // namespace tessera
