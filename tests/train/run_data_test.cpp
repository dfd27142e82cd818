#include "train/run_data.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

/// A source of so many tokens; nothing reads it.
class Tokens : public InstanceSource {
 public:
  Tokens(int64_t tokens, int64_t context) : tokens_(tokens), context_(context) {}
  int64_t context() const override { return context_; }
  int64_t instances(Split) const override { return tokens_ / context_; }
  void read(Split, int64_t, int64_t, std::span<int32_t>) const override {
    throw InternalError("nothing to read");
  }
  void will_need(Split, int64_t, int64_t) const override {}
  std::string location(Split, int64_t, int64_t, int64_t) const override { return ""; }
  std::string fingerprint() const override { return ""; }
  std::string description() const override { return ""; }

 private:
  int64_t tokens_;
  int64_t context_;
};

/// A phase that draws from two sources with these weights; a weight of 0: not from that one.
TrainingData phase_of(double web, double math, int64_t context) {
  return {{},
          {{"web", web, std::make_shared<Tokens>(1024, context)},
           {"math", math, std::make_shared<Tokens>(1024, context)}}};
}

TEST(RunData, GoesOnWhereASourceWas) {
  const RunData data(std::vector<TrainingData>{phase_of(1, 3, 32), phase_of(1, 3, 64)});
  const LoaderState state{{{0, 4, 4}, {1, 7, 39}}};
  const LoaderState longer = data.entry_position(1, state);
  // 4 * 32 tokens are 2 instances of 64; 7 * 32 = 224 are 3.5, so the fourth is passed over.
  EXPECT_EQ(longer, (LoaderState{{{0, 2, 4}, {1, 4, 39}}})) << "the mix stays: so do its counts";
  EXPECT_EQ(data.entry_position(0, state), state);
  const LoaderState last{{{2, 31, 1}, {0, 0, 0}}};
  EXPECT_EQ(data.entry_position(1, last), (LoaderState{{{3, 0, 1}, {0, 0, 0}}}))
      << "the next epoch";
}

TEST(RunData, CountsSharesAnewWhereTheMixChanges) {
  const RunData data(std::vector<TrainingData>{phase_of(1, 0, 32), phase_of(1, 1, 32)});
  EXPECT_EQ(data.entry_position(1, {{{0, 5, 5}, {0, 0, 0}}}),
            (LoaderState{{{0, 5, 0}, {0, 0, 0}}}));
  const RunData scaled(std::vector<TrainingData>{phase_of(1, 3, 32), phase_of(2, 6, 32)});
  EXPECT_EQ(scaled.entry_position(1, {{{0, 5, 5}, {0, 15, 15}}}),
            (LoaderState{{{0, 5, 5}, {0, 15, 15}}}));
}

TEST(RunData, DrawsFromTheSourcesOfThePhaseAlone) {
  const RunData data(std::vector<TrainingData>{phase_of(0, 3, 32)});
  ASSERT_EQ(data.drawn_sources(0).sources.size(), 1U);
  EXPECT_EQ(data.drawn_sources(0).sources[0].name, "math");
  const LoaderState all{{{1, 2, 3}, {4, 5, 6}}};
  EXPECT_EQ(data.drawn_positions(0, all), (LoaderState{{{4, 5, 6}}}));
  EXPECT_EQ(data.with_drawn_positions(0, all, {{{7, 8, 9}}}),
            (LoaderState{{{1, 2, 3}, {7, 8, 9}}}));
}

}  // namespace
}  // namespace tessera
