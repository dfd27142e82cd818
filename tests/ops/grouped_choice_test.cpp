#include "ops/moe/grouped_choice.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Libraries that are there, or are missing for a reason. They count how often each is asked.
struct ChoosingFrom {
  std::string without_cutlass, without_cublaslt;
  int asked_cutlass = 0, asked_cublaslt = 0;

  GroupedChoice choose(const TunedGroups& table, const GroupedShape& shape) {
    const GroupedCandidate candidates[] = {{GroupedLibrary::cutlass,
                                            [this] {
                                              ++asked_cutlass;
                                              return without_cutlass;
                                            }},
                                           {GroupedLibrary::cublaslt, [this] {
                                              ++asked_cublaslt;
                                              return without_cublaslt;
                                            }}};
    return choose_grouped("grouped_linear", shape, table, candidates);
  }
};

GroupedShape shape_of_rows(int64_t rows) {
  return {.groups = 4, .rows = rows, .in = 64, .out = 32, .input = DType::bf16};
}

TunedGroups table_with(GroupedLibrary library) {
  return {.in_use = true, .products = {{.shape = shape_of_rows(10), .library = library}}};
}

constexpr const char* kNoCutlass = "this build was made without CUTLASS's headers";
constexpr const char* kNoCublaslt = "cuBLASLt 130100 has no products of groups";

TEST(GroupedChoice, IsTheFirstThatIsThereWithoutATable) {
  ChoosingFrom both, one{.without_cutlass = kNoCutlass, .without_cublaslt = ""};
  EXPECT_EQ(both.choose({}, shape_of_rows(10)).library, GroupedLibrary::cutlass);
  EXPECT_EQ(both.choose({}, shape_of_rows(10)).remark, "");
  EXPECT_EQ(both.asked_cublaslt, 0);  // which would look for an algorithm
  EXPECT_EQ(one.choose({}, shape_of_rows(10)).library, GroupedLibrary::cublaslt);
  EXPECT_THAT(one.choose({}, shape_of_rows(10)).remark,
              AllOf(HasSubstr(kNoCutlass), HasSubstr("cuBLASLt multiplies")));
}

TEST(GroupedChoice, IsTheTablesWhereThatIsThere) {
  for (const GroupedLibrary library : {GroupedLibrary::cutlass, GroupedLibrary::cublaslt}) {
    ChoosingFrom both;
    const GroupedChoice choice = both.choose(table_with(library), shape_of_rows(10));
    EXPECT_EQ(choice.library, library);
    EXPECT_EQ(choice.remark, "");
    EXPECT_EQ(both.asked_cutlass + both.asked_cublaslt, 1);
  }
}

TEST(GroupedChoice, IsTheOtherLibraryWhereTheTablesIsMissing) {
  ChoosingFrom only_cublaslt{.without_cutlass = kNoCutlass, .without_cublaslt = ""};
  const GroupedChoice second =
      only_cublaslt.choose(table_with(GroupedLibrary::cutlass), shape_of_rows(10));
  EXPECT_EQ(second.library, GroupedLibrary::cublaslt);
  EXPECT_THAT(second.remark,
              AllOf(HasSubstr("run.tuned_products has CUTLASS"), HasSubstr(kNoCutlass),
                    HasSubstr("cuBLASLt multiplies"), HasSubstr("tessera bench products")));
  ChoosingFrom only_cutlass{.without_cutlass = "", .without_cublaslt = kNoCublaslt};
  const GroupedChoice first =
      only_cutlass.choose(table_with(GroupedLibrary::cublaslt), shape_of_rows(10));
  EXPECT_EQ(first.library, GroupedLibrary::cutlass);
  EXPECT_THAT(first.remark, AllOf(HasSubstr("run.tuned_products has cuBLASLt"),
                                  HasSubstr(kNoCublaslt), HasSubstr("CUTLASS multiplies")));
}

TEST(GroupedChoice, OfAShapeThatTheTableLacksIsRemarked) {
  ChoosingFrom both;
  const GroupedChoice choice = both.choose(table_with(GroupedLibrary::cublaslt), shape_of_rows(11));
  EXPECT_EQ(choice.library, GroupedLibrary::cutlass);
  EXPECT_THAT(choice.remark, AllOf(HasSubstr("does not have"), HasSubstr("up to 11 rows"),
                                   HasSubstr("CUTLASS multiplies")));
}

TEST(GroupedChoice, WithoutAnyLibraryAllReasonsAreGiven) {
  ChoosingFrom none{.without_cutlass = kNoCutlass, .without_cublaslt = kNoCublaslt};
  for (const TunedGroups& table :
       {TunedGroups{}, table_with(GroupedLibrary::cutlass), table_with(GroupedLibrary::cublaslt)}) {
    EXPECT_THAT(error_of([&] { none.choose(table, shape_of_rows(10)); }),
                AllOf(HasSubstr("grouped_linear"), HasSubstr(kNoCutlass), HasSubstr(kNoCublaslt),
                      HasSubstr("train.precision")));
  }
}

TEST(GroupedChoices, LogARemarkOnce) {
  const GroupedChoice fallback{GroupedLibrary::cublaslt, "cuBLASLt multiplies them instead"};
  GroupedChoices choices;
  EXPECT_EQ(choices.find(shape_of_rows(1)), nullptr);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(choices.keep(shape_of_rows(2), fallback), GroupedLibrary::cublaslt);
  EXPECT_EQ(choices.keep(shape_of_rows(1), fallback), GroupedLibrary::cublaslt);
  EXPECT_EQ(choices.keep(shape_of_rows(3), {}), GroupedLibrary::cutlass);
  const std::string logged = ::testing::internal::GetCapturedStderr();
  const size_t first = logged.find(fallback.remark);
  EXPECT_NE(first, std::string::npos) << logged;
  EXPECT_EQ(logged.find(fallback.remark, first + 1), std::string::npos) << logged;
  EXPECT_EQ(std::ranges::count(logged, '\n'), 1) << logged;
  EXPECT_EQ(*choices.find(shape_of_rows(1)), GroupedLibrary::cublaslt);
  EXPECT_EQ(choices.shapes(),
            (std::vector<GroupedShape>{shape_of_rows(1), shape_of_rows(2), shape_of_rows(3)}));
}

}  // namespace
}  // namespace tessera
