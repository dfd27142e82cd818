#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "data/loader.h"
#include "data/sources/open_data.h"
#include "data/support.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Row = std::vector<int32_t>;

fs::path source_fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests/fixtures/token_files" / name;
}

std::string headerless(const Row& tokens) {
  const std::vector<uint16_t> narrow(tokens.begin(), tokens.end());
  return std::string(reinterpret_cast<const char*>(narrow.data()), 2 * narrow.size());
}

std::vector<Row> rows(const InstanceSource& source, Split split, int64_t epoch) {
  std::vector<Row> result;
  for (int64_t i = 0; i < source.instances(split); ++i) {
    result.emplace_back(static_cast<size_t>(source.context()));
    source.will_need(split, epoch, i);
    source.read(split, epoch, i, result.back());
  }
  return result;
}

DataConfig mix_of(std::vector<SourceConfig> sources, int64_t context = 16) {
  return {.directory = "", .context = context, .tokenizer = "bytes", .sources = std::move(sources)};
}

/// One document prepared, and the same as a headerless token file.
class SourcesTest : public ::testing::Test {
 protected:
  SourcesTest() {
    const std::string text = random_text(1, 1000);
    for (const char letter : text) stream_.push_back(static_cast<unsigned char>(letter));
    folder_.write("a.txt", text);
    folder_.write("tokens/a.npy", headerless(stream_));
    prepared_ = prepare(byte_options(folder_ / "a.txt", folder_ / "web"), Logger()).manifest;
    stream_.push_back(256);
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  /// The token file with the seed and the held-out fraction of the prepared folder.
  SourceConfig direct() const {
    return {.name = "direct",
            .path = path("tokens/*.npy"),
            .dtype = TokenFileType::u16,
            .held_out = 0.1,
            .seed = 7};
  }
  SourceConfig web() const { return {.path = path("web")}; }

  TemporaryFolder folder_;
  Row stream_;
  Manifest prepared_;
};

TEST_F(SourcesTest, ADirectSourceGivesTheInstancesThatPrepareWrites) {
  const TrainingData data = open_data(mix_of({web(), direct()}));
  const InstanceSource& prepared = *data.sources[0].instances;
  const InstanceSource& source = *data.sources[1].instances;
  for (const Split split : {Split::train, Split::held_out}) {
    ASSERT_GT(source.instances(split), 10);
    EXPECT_EQ(rows(source, split, 0), rows(prepared, split, 0));
  }
  EXPECT_EQ(rows(source, Split::held_out, 3), rows(source, Split::held_out, 0));
}

TEST_F(SourcesTest, EachEpochHasEveryInstanceOnceInAnOrderOfItsOwn) {
  const TrainingData data = open_data(mix_of({direct()}));
  const InstanceSource& source = *data.sources[0].instances;
  const std::vector<Row> first = rows(source, Split::train, 0);
  const std::vector<Row> second = rows(source, Split::train, 1);
  const std::vector<Row> third = rows(source, Split::train, 2);
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  const auto sorted = [](std::vector<Row> some) {
    std::ranges::sort(some);
    return some;
  };
  EXPECT_EQ(sorted(first), sorted(second));
  EXPECT_EQ(sorted(first), sorted(third));
  std::set<Row> held_out;
  for (const Row& row : rows(source, Split::held_out, 0)) held_out.insert(row);
  for (const Row& row : first) EXPECT_EQ(held_out.count(row), 0U);
  std::multiset<Row> expected;
  for (size_t i = 0; i + 16 <= stream_.size(); i += 16) {
    expected.emplace(stream_.begin() + static_cast<std::ptrdiff_t>(i),
                     stream_.begin() + static_cast<std::ptrdiff_t>(i) + 16);
  }
  std::multiset<Row> found(first.begin(), first.end());
  found.insert(held_out.begin(), held_out.end());
  EXPECT_EQ(found, expected);
}

TEST_F(SourcesTest, HeldOutMayBeNothingOrEverything) {
  SourceConfig source = direct();
  source.held_out = 0;
  const auto nothing = open_data(mix_of({source})).sources[0].instances;
  EXPECT_EQ(nothing->instances(Split::held_out), 0);
  source.held_out = 1;
  const TrainingData everything = open_data(mix_of({source}));
  EXPECT_EQ(everything.sources[0].instances->instances(Split::held_out),
            nothing->instances(Split::train));
  EXPECT_THAT(error_of([&] { Loader(everything, {}); }),
              AllOf(HasSubstr("has no train data"), HasSubstr("a smaller --held-out")));
  source.held_out = 1e-9;
  EXPECT_EQ(open_data(mix_of({source})).sources[0].instances->instances(Split::held_out), 1);
}

TEST_F(SourcesTest, FormatsAreFoundAndNamesComeFromPaths) {
  const std::vector<SourceConfig> named =
      named_sources(mix_of({web(),
                            {.path = source_fixture("ended").string()},
                            {.path = source_fixture("bare.idx").string()},
                            {.path = path("tokens/*.npy"), .dtype = TokenFileType::u16},
                            {.path = source_fixture("array.npy").string()},
                            {.name = "named", .path = source_fixture("array_i64.npy").string()}}));
  std::vector<std::string> names;
  for (const SourceConfig& source : named) names.push_back(source.name);
  EXPECT_THAT(names, ElementsAre("web", "ended", "bare", "tokens", "array", "named"));
  const TrainingData data = open_data(mix_of(named));
  const int64_t expected = data.sources[1].instances->instances(Split::train);
  EXPECT_GT(expected, 50);
  for (const size_t i : {2, 4, 5}) {
    EXPECT_EQ(data.sources[i].instances->instances(Split::train), expected) << names[i];
  }
}

TEST_F(SourcesTest, NamesThatCannotStandInReportsAreRefused) {
  const auto message = [](std::vector<SourceConfig> sources) {
    return error_of([&] { named_sources(mix_of(std::move(sources))); });
  };
  EXPECT_THAT(message({{.path = "a/web"}, {.path = "b/web/"}}),
              HasSubstr("two sources of [[data.sources]] are named \"web\""));
  EXPECT_THAT(message({{.name = "a b", .path = "x"}}), HasSubstr("is named \"a b\""));
  EXPECT_THAT(message({{.name = "12", .path = "x"}}), HasSubstr("not digits alone"));
  EXPECT_THAT(message({{.name = "x"}}), HasSubstr("has no path"));
  EXPECT_EQ(named_sources(mix_of({{.path = "data/2024"}})).at(0).name, "source_2024");
  EXPECT_EQ(named_sources(mix_of({{.path = "a b/c\nd"}})).at(0).name, "c_d");
  EXPECT_EQ(named_sources(mix_of({{.path = "*/?.npy"}})).at(0).name, "source_");
}

TEST_F(SourcesTest, TheTokenizerIsThatOfThePreparedSourceOrTheKey) {
  DataConfig config = mix_of({{.path = source_fixture("ended").string()}, web()});
  config.tokenizer = "";
  const TrainingData data = open_data(config);
  EXPECT_EQ(data.tokenizer.fingerprint, load_tokenizer("bytes")->fingerprint());
  EXPECT_EQ(data.tokenizer.origin, path("web"));
  EXPECT_EQ(data.tokenizer.files, prepared_.tokenizer_files);
  EXPECT_EQ(open_data(mix_of({direct()})).tokenizer.origin, "bytes");
  config.sources.pop_back();
  EXPECT_THAT(error_of([&] { open_data(config); }), HasSubstr("set data.tokenizer"));
  EXPECT_FALSE(find_tokenizer(config).has_value());
}

TEST_F(SourcesTest, SourcesOfAnotherTokenizerAreRefused) {
  PrepareOptions options = byte_options(folder_ / "a.txt", folder_ / "other");
  options.tokenizer = "";
  options.train_tokenizer = 300;
  prepare(options, Logger());
  DataConfig config = mix_of({web(), {.path = path("other")}});
  config.tokenizer = "";
  EXPECT_THAT(error_of([&] { open_data(config); }),
              AllOf(HasSubstr(path("other") + " was prepared with another tokenizer than that of " +
                              path("web")),
                    HasSubstr("prepare it with `--tokenizer")));
}

TEST_F(SourcesTest, KeysThatAFormatDoesNotTakeAreRefused) {
  const auto message = [&](const SourceConfig& source) {
    return error_of([&] { open_data(mix_of({source})); });
  };
  EXPECT_THAT(message({.path = path("web"), .dtype = TokenFileType::u16}),
              HasSubstr("dtype of the source web is set, but"));
  EXPECT_THAT(message({.path = path("web"), .held_out = 0.2}), HasSubstr("held_out of the source"));
  EXPECT_THAT(message({.path = path("web"), .seed = 3}), HasSubstr("seed of the source"));
  EXPECT_THAT(message({.path = path("web"), .end_of_document = DocumentEnds::present}),
              HasSubstr("end_of_document of the source"));
  EXPECT_THAT(message({.path = source_fixture("ended").string(), .dtype = TokenFileType::u16}),
              HasSubstr("whose index says it"));
  EXPECT_THAT(message({.path = path("nothing")}),
              AllOf(HasSubstr("there is no data at"), HasSubstr("nothing.idx")));
  EXPECT_THAT(message({.path = path("tokens/a.npy")}), HasSubstr("has no .npy header"));
  EXPECT_THAT(error_of([&] { open_data(mix_of({direct()}, 1)); }), HasSubstr("context of 1"));
  EXPECT_THAT(error_of([&] { open_data(mix_of({direct()}, 1 << 20)); }),
              HasSubstr("fewer than the context"));
}

TEST_F(SourcesTest, IdsOutsideTheModelsVocabularyAreNamedWithTheirTokenFile) {
  const TrainingData data = open_data(mix_of({direct()}));
  LoaderOptions options{.split = Split::train, .rows = 8};
  options.vocabulary_size = 112;  // the letters end with p, which is 112
  Loader loader(data, options);
  const std::string message = error_of([&] {
    while (true) loader.next();
  });
  EXPECT_THAT(message, AllOf(HasSubstr(path("tokens/a.npy") + ": token "),
                             HasSubstr(" is the id 112, but the model has a vocabulary of 112")));
}

TEST_F(SourcesTest, TheFingerprintTellsDataAndOrderApart) {
  const auto fingerprint = [&](const SourceConfig& source, int64_t context = 16) {
    return open_data(mix_of({source}, context)).sources[0].instances->fingerprint();
  };
  const std::string original = fingerprint(direct());
  SourceConfig moved = direct();
  fs::create_directories(folder_ / "moved");
  fs::copy(folder_ / "tokens/a.npy", folder_ / "moved/b.npy");
  moved.path = path("moved/b.npy");
  EXPECT_EQ(fingerprint(moved), original);
  SourceConfig other = direct();
  other.seed = 8;
  EXPECT_NE(fingerprint(other), original);
  other = direct();
  other.held_out = 0.2;
  EXPECT_NE(fingerprint(other), original);
  EXPECT_NE(fingerprint(direct(), 8), original);
  Row changed(stream_.begin(), stream_.end() - 1);
  changed.back() ^= 1;
  folder_.write("moved/b.npy", headerless(changed));
  EXPECT_NE(fingerprint(moved), original);
}

TEST_F(SourcesTest, DataToEvaluateOnIsTheHeldOutPartOrTheWhole) {
  const auto held_out = [&](const SourceConfig& source, int64_t context) {
    return open_held_out_data(source, context, "bytes").sources[0].instances;
  };
  EXPECT_EQ(held_out(web(), 512)->context(), 16);
  EXPECT_EQ(held_out(web(), 16)->instances(Split::held_out), prepared_.held_out.instances);
  EXPECT_EQ(held_out(direct(), 16)->instances(Split::held_out),
            static_cast<int64_t>(stream_.size()) / 16);
  EXPECT_EQ(held_out(direct(), 32)->context(), 32);
}

/// The rows of batches, with the name of the source that each comes from.
class MixedLoaderTest : public SourcesTest {
 protected:
  MixedLoaderTest() {
    // Each source of letters of its own.
    for (const char letter : {'a', 'b', 'c'}) {
      Row tokens;
      const int length = 16 * (letter == 'a' ? 37 : 5000);
      for (int i = 0; i < length; ++i) tokens.push_back(letter);
      folder_.write(fmt::format("{}/tokens.npy", letter), headerless(tokens));
    }
  }
  TrainingData mix(double a, double b, double c) const {
    const auto source = [&](const char* name, double weight) {
      return SourceConfig{.name = name,
                          .path = path(name) + "/tokens.npy",
                          .weight = weight,
                          .dtype = TokenFileType::u16,
                          .held_out = 0};
    };
    return open_data(mix_of({source("a", a), source("b", b), source("c", c)}));
  }
  static std::string letters(const Batch& batch) {
    std::string result;
    for (size_t row = 0; row < batch.tokens.size(); row += 16) {
      result += static_cast<char>(batch.tokens[row]);
    }
    return result;
  }
};

TEST_F(MixedLoaderTest, EachSourceGivesItsShareAndThePositionsSayIt) {
  Loader loader(mix(6, 3, 1), {.rows = 10});
  std::map<char, int64_t> counts;
  for (int i = 0; i < 30; ++i) {
    for (const char letter : letters(loader.next())) ++counts[letter];
    EXPECT_EQ(counts['a'], 6 * (i + 1));
    EXPECT_EQ(counts['b'], 3 * (i + 1));
    EXPECT_EQ(counts['c'], i + 1);
  }
  const LoaderState& state = loader.state();
  // a's 37 instances, and the end-of-document token that is cut off, were gone through four times.
  EXPECT_EQ(state.sources[0], (SourcePosition{180 / 37, 180 % 37, 180}));
  EXPECT_EQ(state.sources[1], (SourcePosition{0, 90, 90}));
  EXPECT_EQ(state.sources[2], (SourcePosition{0, 30, 30}));
}

TEST_F(MixedLoaderTest, ResumesExactlyAtAnyBatch) {
  const TrainingData data = open_data(
      mix_of({web(), direct(), {.path = source_fixture("bare").string(), .weight = 0.6}}));
  std::vector<Batch> batches;
  std::vector<LoaderState> states;
  Loader whole(data, {.rows = 3});
  for (int i = 0; i < 120; ++i) {  // more than an epoch of each
    states.push_back(whole.state());
    batches.push_back(whole.next());
  }
  EXPECT_GT(whole.state().sources[2].epoch, 0);
  const CounterRandom random(1, "stops");
  for (uint64_t stop = 0; stop < 12; ++stop) {
    const size_t at = random.bits(stop) % states.size();
    Loader resumed(
        data, {.rows = 3, .read_ahead = 1 + static_cast<int64_t>(stop % 4), .start = states[at]});
    for (size_t i = at; i < std::min(batches.size(), at + 20); ++i) {
      ASSERT_EQ(resumed.state(), states[i]);
      ASSERT_EQ(resumed.next(), batches[i]) << "resumed at " << at;
    }
  }
}

TEST_F(MixedLoaderTest, PartsShareTheMixWhateverTheirNumber) {
  const TrainingData data = mix(5, 2, 1);
  Loader whole(data, {.rows = 12});
  for (const int64_t parts : {2, 3, 4}) {
    whole.seek({});
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int64_t part = 0; part < parts; ++part) {
      loaders.push_back(std::make_unique<Loader>(
          data, LoaderOptions{.rows = 12 / parts, .part = part, .parts = parts}));
    }
    for (int step = 0; step < 20; ++step) {
      const std::string expected = letters(whole.next());
      std::string joined;
      for (const auto& loader : loaders) {
        joined += letters(loader->next());
        EXPECT_EQ(loader->state(), whole.state());
      }
      ASSERT_EQ(joined, expected);
    }
  }
}

TEST_F(MixedLoaderTest, OtherWeightsGoOnFromTheSamePositions) {
  Loader loader(mix(6, 3, 1), {.rows = 10});
  for (int i = 0; i < 7; ++i) loader.next();
  LoaderState state = loader.state();
  const TrainingData other = mix(1, 1, 8);
  EXPECT_THAT(error_of([&] { Loader(other, {.rows = 10, .start = state}); }),
              HasSubstr("not its share of a mix of these weights"));
  for (SourcePosition& position : state.sources) position.drawn = 0;
  Loader changed(other, {.rows = 10, .start = state});
  const std::string drawn = letters(changed.next());
  EXPECT_EQ(std::ranges::count(drawn, 'c'), 8);
  EXPECT_EQ(changed.state().sources[2], (SourcePosition{0, 15, 8}));
}

}  // namespace
}  // namespace tessera
