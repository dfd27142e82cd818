#include "config/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "data/prepare.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Prepared data of the byte tokenizer in a folder of its own.
class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() {
    write_file(folder_ / "text.txt", std::string(2000, 'a'));
    PrepareOptions options;
    options.inputs = {(folder_ / "text.txt").string()};
    options.output = folder_ / "data";
    options.tokenizer = "bytes";
    options.context = 16;
    options.threads = 1;
    options.progress = false;
    vocabulary_ = prepare(options, Logger()).manifest.vocabulary_size;
    config_ = parse("");
    config_.data.directory = (folder_ / "data").string();
  }

  TemporaryFolder folder_;
  int64_t vocabulary_ = 0;
  RunConfig config_;
};

TEST_F(ResolveTest, TheVocabularyIsTheTokenizers) {
  EXPECT_EQ(resolve(config_).model.vocabulary_size, vocabulary_);
}

TEST_F(ResolveTest, ALargerVocabularyIsKeptAndASmallerOneRefused) {
  config_.model.vocabulary_size = vocabulary_ + 7;
  EXPECT_EQ(resolve(config_).model.vocabulary_size, vocabulary_ + 7);
  config_.model.vocabulary_size = vocabulary_ - 1;
  EXPECT_THAT(error_of([&] { resolve(config_); }),
              AllOf(HasSubstr("model.vocabulary_size is " + std::to_string(vocabulary_ - 1)),
                    HasSubstr("has " + std::to_string(vocabulary_) + " tokens")));
}

TEST_F(ResolveTest, WithoutDataTheVocabularyMustBeGiven) {
  config_.data.directory = (folder_ / "nothing").string();
  EXPECT_THAT(error_of([&] { resolve(config_); }),
              AllOf(HasSubstr("model.vocabulary_size is not set"), HasSubstr("tessera prepare")));
  config_.model.vocabulary_size = 300;
  EXPECT_EQ(resolve(config_).model.vocabulary_size, 300);
}

TEST_F(ResolveTest, ThreadsAreTheMachinesWhereNoneAreGiven) {
  EXPECT_GE(resolve(config_).run.threads, 1);
  config_.run.threads = 3;
  EXPECT_EQ(resolve(config_).run.threads, 3);
}

}  // namespace
}  // namespace tessera
