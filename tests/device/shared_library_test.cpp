#include "device/shared_library.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SharedLibrary, LoadsTheFirstThatIsFound) {
  const std::array<const char*, 2> names{"libnothing_of_this_name.so.1", "libm.so.6"};
  const SharedLibrary library(names, "tests");
  EXPECT_EQ(library.name(), "libm.so.6");
  EXPECT_DOUBLE_EQ(library.function<double(double)>("cbrt")(27.0), 3.0);
  EXPECT_TRUE(library.has("cbrt"));
  EXPECT_FALSE(library.has("no_function_of_this_name"));
}

TEST(SharedLibrary, SaysWhatIsMissing) {
  const std::array<const char*, 1> nothing{"libnothing_of_this_name.so.1"};
  EXPECT_THAT(error_of([&] { SharedLibrary(nothing, "products on a device"); }),
              AllOf(HasSubstr("libnothing_of_this_name.so.1"), HasSubstr("products on a device"),
                    HasSubstr("LD_LIBRARY_PATH")));
  const std::array<const char*, 1> names{"libm.so.6"};
  const SharedLibrary library(names, "products on a device");
  EXPECT_THAT(error_of([&] { (void)library.function<void()>("no_function_of_this_name"); }),
              AllOf(HasSubstr("libm.so.6"), HasSubstr("no_function_of_this_name"),
                    HasSubstr("products on a device")));
}

}  // namespace
}  // namespace tessera
