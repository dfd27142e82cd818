#include <gtest/gtest.h>

#include "mpi/joined.h"

namespace tessera {
namespace {

/// The processes of this test are on one machine, and each may run on any of its cores. The test is
/// among those before errors_test.cpp, which ends the work of all ranks.
TEST(Places, OfAllRanksAreKnownToEachRank) {
  const std::vector<RankPlace> places = joined().places();
  ASSERT_EQ(std::ssize(places), joined().ranks());
  for (size_t rank = 0; rank < places.size(); ++rank) {
    EXPECT_EQ(places[rank].machine, joined().hosts()[rank]);
    EXPECT_EQ(places[rank].cores, core_place());
  }
}

}  // namespace
}  // namespace tessera
