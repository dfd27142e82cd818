#include "base/contradictions.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

TEST(Contradictions, AreToldTogether) {
  Contradictions found;
  EXPECT_TRUE(found.none());
  EXPECT_NO_THROW(found.require_none());
  found.add("a ({}) is above b ({})", 3, 2);
  EXPECT_FALSE(found.none());
  EXPECT_EQ(error_of([&] { found.require_none(); }), "a (3) is above b (2)");
  found.add("c does not divide d");
  EXPECT_EQ(error_of([&] { found.require_none(); }),
            "2 contradictions:\n  a (3) is above b (2)\n  c does not divide d");
}

}  // namespace
}  // namespace tessera
