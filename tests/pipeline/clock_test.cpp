#include "pipeline/clock.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {
TEST(Clock, Empty) {}
}  // namespace
}  // namespace tessera
