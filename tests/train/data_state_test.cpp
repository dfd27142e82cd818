#include "train/data_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// Token files of letters, each a source.
class DataStateTest : public ::testing::Test {
 protected:
  SourceConfig source(const std::string& name, double weight, const std::string& content) const {
    const fs::path path = folder_.path() / (content + ".npy");
    std::string bytes;
    for (int i = 0; i < 16 * 50; ++i) bytes += std::string{content[0], '\0'};
    write_file(path, bytes);
    return {.name = name,
            .path = path.string(),
            .weight = weight,
            .dtype = TokenFileType::u16,
            .held_out = 0};
  }
  static TrainingData open(std::vector<SourceConfig> sources) {
    return open_data(
        {.directory = "", .context = 16, .tokenizer = "bytes", .sources = std::move(sources)});
  }
  static CheckpointState saved(const TrainingData& data, const LoaderState& state) {
    CheckpointState checkpoint;
    checkpoint.values = data_values(data, state);
    return checkpoint;
  }
  static LoaderState restore(const CheckpointState& checkpoint, const TrainingData& data) {
    return restored_state(checkpoint, data, "step-7", Logger());
  }

  TemporaryFolder folder_;
  const LoaderState state_{{{2, 5, 70}, {0, 30, 30}}};
};

TEST_F(DataStateTest, TheSameMixGoesOnExactly) {
  const TrainingData data = open({source("web", 0.7, "a"), source("code", 0.3, "b")});
  const CheckpointState checkpoint = saved(data, state_);
  EXPECT_EQ(restore(checkpoint, data), state_);
  // Shares count, not weights; data that moved or has another name is still the same.
  EXPECT_EQ(restore(checkpoint, open({source("web", 1.4, "a"), source("code", 0.6, "b")})), state_);
  EXPECT_EQ(restore(checkpoint, open({source("pages", 0.7, "a"), source("code", 0.3, "b")})),
            state_);
  EXPECT_EQ(restore(checkpoint, open({source("code", 0.3, "b"), source("web", 0.7, "a")})),
            (LoaderState{{{0, 30, 30}, {2, 5, 70}}}));
}

TEST_F(DataStateTest, AnotherMixGoesOnFromThePositionsOfItsSources) {
  const CheckpointState checkpoint =
      saved(open({source("web", 0.7, "a"), source("code", 0.3, "b")}), state_);
  EXPECT_EQ(restore(checkpoint, open({source("web", 0.5, "a"), source("code", 0.5, "b")})),
            (LoaderState{{{2, 5, 0}, {0, 30, 0}}}));
  EXPECT_EQ(restore(checkpoint, open({source("books", 1, "c"), source("code", 1, "b")})),
            (LoaderState{{{0, 0, 0}, {0, 30, 0}}}));
  EXPECT_EQ(restore(checkpoint, open({source("web", 1, "a")})), (LoaderState{{{2, 5, 0}}}));
}

TEST_F(DataStateTest, OtherDataUnderTheSameNameIsRefused) {
  const CheckpointState checkpoint =
      saved(open({source("web", 0.7, "a"), source("code", 0.3, "b")}), state_);
  const auto message = [&](std::vector<SourceConfig> sources) {
    return error_of([&] { restore(checkpoint, open(std::move(sources))); });
  };
  EXPECT_THAT(message({source("web", 0.7, "c"), source("code", 0.3, "b")}),
              HasSubstr("step-7 was trained on other data than the source web holds now"));
  EXPECT_THAT(message({source("x", 1, "c"), source("y", 1, "d")}),
              HasSubstr("was trained on other data"));
}

TEST_F(DataStateTest, AnotherTokenizerIsRefused) {
  const TrainingData data = open({source("web", 1, "a")});
  CheckpointState checkpoint = saved(data, {{{0, 1, 1}}});
  checkpoint.values["data.tokenizer"] = "0123456789abcdef";
  EXPECT_THAT(error_of([&] { restore(checkpoint, data); }), HasSubstr("another tokenizer"));
}

TEST_F(DataStateTest, AMissingValueIsNamed) {
  const TrainingData data = open({source("web", 1, "a")});
  CheckpointState checkpoint = saved(data, {{{0, 1, 1}}});
  checkpoint.values.erase("data.0.drawn");
  EXPECT_THAT(error_of([&] { restore(checkpoint, data); }), HasSubstr("data.0.drawn"));
}

}  // namespace
}  // namespace tessera
