#include "data/loader.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "base/hash_line.h"
#include "data/shards/split_reader.h"
#include "data/support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() {
    std::string lines;
    for (uint64_t i = 0; i < 150; ++i) {
      lines += fmt::format("{{\"text\": \"{}\"}}\n",
                           std::string(1 + i % 40, static_cast<char>('a' + i % 26)));
    }
    folder_.write("in/a.jsonl", lines);
    prepared_ = prepare(byte_options(folder_ / "in", data()), Logger()).manifest;
  }

  fs::path data() const { return folder_ / "out"; }
  /// The prepared data, in its own context or a shorter one.
  TrainingData open(int64_t context = 0) const {
    return open_data({.directory = data().string(), .context = context});
  }
  static LoaderOptions options(int64_t rows) {
    LoaderOptions options;
    options.rows = rows;
    return options;
  }
  static SourcePosition position(const Loader& loader) { return loader.state().sources.at(0); }

  TemporaryFolder folder_;
  Manifest prepared_;
};

TEST_F(LoaderTest, BatchesAreTheInstancesInOrderEpochAfterEpoch) {
  const SplitReader reader(data(), Split::train);
  ASSERT_EQ(reader.instances(), prepared_.train.instances);
  ASSERT_GT(prepared_.train.shards.size(), 2U);
  const int64_t rows = 7;
  ASSERT_NE(reader.instances() % rows, 0) << "the epoch's end shall fall inside a batch";
  Loader loader(open(), options(rows));
  std::vector<int32_t> expected(16);
  for (int64_t batch_index = 0; batch_index * rows < 3 * reader.instances(); ++batch_index) {
    const int64_t first = batch_index * rows;
    EXPECT_EQ(position(loader),
              (SourcePosition{first / reader.instances(), first % reader.instances(), first}));
    const Batch batch = loader.next();
    EXPECT_EQ(batch.rows, rows);
    ASSERT_EQ(batch.tokens.size(), static_cast<size_t>(rows * 16));
    for (int64_t row = 0; row < rows; ++row) {
      reader.read((first + row) % reader.instances(), expected);
      const auto begin = batch.tokens.begin() + row * 16;
      ASSERT_EQ(std::vector<int32_t>(begin, begin + 16), expected) << first + row;
    }
  }
}

TEST(Batch, TargetsPositionsAndDocumentStarts) {
  Batch batch;
  batch.rows = 2;
  batch.context = 6;
  batch.tokens = {5, 256, 6, 7, 256, 8, 256, 256, 1, 2, 3, 256};
  complete_batch(batch, 256);
  EXPECT_THAT(batch.targets, ElementsAre(256, 6, 7, 256, 8, -1, 256, 1, 2, 3, 256, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(batch.document_starts, ElementsAre(0, 0, 2, 2, 2, 5, 0, 1, 2, 2, 2, 2));
  EXPECT_EQ(batch.target_count, 10);
}

TEST_F(LoaderTest, StateResumesExactly) {
  Loader loader(open(), options(5));
  for (int i = 0; i < 9; ++i) loader.next();
  const LoaderState state = loader.state();  // while the thread has read further
  std::vector<Batch> expected;
  for (int i = 0; i < 30; ++i) expected.push_back(loader.next());

  LoaderOptions resumed = options(5);
  resumed.start = state;
  Loader fresh(open(), resumed);
  EXPECT_EQ(fresh.state(), state);
  for (const Batch& batch : expected) ASSERT_EQ(fresh.next(), batch);

  loader.seek(state);
  for (const Batch& batch : expected) ASSERT_EQ(loader.next(), batch);
  EXPECT_EQ(loader.state(), fresh.state());
}

TEST_F(LoaderTest, PartsShareTheDataWithoutOverlap) {
  Loader whole(open(), options(6));
  std::vector<std::unique_ptr<Loader>> parts;
  for (int64_t part = 0; part < 3; ++part) {
    LoaderOptions shared = options(2);
    shared.part = part;
    shared.parts = 3;
    parts.push_back(std::make_unique<Loader>(open(), shared));
  }
  for (int step = 0; step < 40; ++step) {
    const Batch batch = whole.next();
    Batch joined{.rows = 6, .context = batch.context, .target_count = batch.target_count};
    const auto add = [](const std::vector<int32_t>& piece, std::vector<int32_t>& to) {
      to.insert(to.end(), piece.begin(), piece.end());
    };
    for (int64_t part = 0; part < 3; ++part) {
      Loader& loader = *parts[static_cast<size_t>(part)];
      const Batch piece = loader.next();
      EXPECT_EQ(std::pair(piece.part, piece.parts), std::pair(part, int64_t{3}));
      EXPECT_EQ(piece.target_count, batch.target_count) << "of all parts";
      add(piece.tokens, joined.tokens);
      add(piece.targets, joined.targets);
      add(piece.document_starts, joined.document_starts);
      add(piece.positions, joined.positions);
      EXPECT_EQ(loader.state(), whole.state());
    }
    ASSERT_EQ(joined, batch);
  }
}

TEST_F(LoaderTest, APartHoldsItsOwnRowsHoweverManyPartsThereAre) {
  for (const int64_t parts : {1, 3, 64}) {
    LoaderOptions shared = options(2);
    shared.part = parts - 1;
    shared.parts = parts;
    Loader loader(open(), shared);
    const Batch batch = loader.next();
    for (const auto* numbers :
         {&batch.tokens, &batch.targets, &batch.document_starts, &batch.positions}) {
      EXPECT_EQ(numbers->capacity(), 2U * 16U) << parts;
    }
  }
}

TEST_F(LoaderTest, BatchLargerThanTheDataWrapsMoreThanOnce) {
  LoaderOptions held_out = options(0);
  held_out.split = Split::held_out;
  held_out.rows = prepared_.held_out.instances * 2 + 1;
  Loader loader(open(), held_out);
  const Batch batch = loader.next();
  const auto row = [&](int64_t i) {
    return std::vector<int32_t>(batch.tokens.begin() + i * 16, batch.tokens.begin() + (i + 1) * 16);
  };
  EXPECT_EQ(row(0), row(prepared_.held_out.instances));
  EXPECT_EQ(row(0), row(2 * prepared_.held_out.instances));
  EXPECT_EQ(position(loader), (SourcePosition{2, 1, held_out.rows}));
}

TEST_F(LoaderTest, ShorterContextCutsInstances) {
  Loader short_loader(open(8), options(4));
  Loader long_loader(open(), options(2));
  EXPECT_EQ(short_loader.instances(), 2 * long_loader.instances());
  EXPECT_EQ(short_loader.context(), 8);
  for (int i = 0; i < 60; ++i) {
    const Batch batch = short_loader.next();
    ASSERT_EQ(batch.tokens, long_loader.next().tokens);
    EXPECT_EQ(batch.targets[7], -1);
    EXPECT_EQ(batch.positions[8], 0);
    EXPECT_EQ(batch.target_count, 4 * 7);
  }
}

TEST_F(LoaderTest, ContextsThatDoNotFitAreRefused) {
  for (const int64_t context : {32, 5, 1, -4}) {
    const std::string message = error_of([&] { open(context); });
    EXPECT_THAT(message, HasSubstr(fmt::format("the context of {}", context)));
    EXPECT_THAT(message, HasSubstr("prepared with 16"));
  }
}

TEST_F(LoaderTest, OptionsAndPositionsOutOfRangeAreRefused) {
  EXPECT_THAT(error_of([&] { Loader(open(), options(0)); }), HasSubstr("rows is 0"));
  LoaderOptions part = options(1);
  part.part = 2;
  part.parts = 2;
  EXPECT_THAT(error_of([&] { Loader(open(), part); }), HasSubstr("expected 0 to 1"));
  Loader loader(open(), options(1));
  for (const SourcePosition wrong : {SourcePosition{0, loader.instances()}, SourcePosition{-1, 0},
                                     SourcePosition{0, -1}, SourcePosition{int64_t{1} << 62, 0}}) {
    EXPECT_THAT(error_of([&] { loader.seek({{wrong}}); }), HasSubstr("there is no instance"));
  }
  EXPECT_EQ(position(loader), SourcePosition{});
}

TEST_F(LoaderTest, IncompleteFolderSaysToPrepareAgain) {
  fs::remove(data() / "manifest.json");
  const std::string message = error_of([&] { open(); });
  EXPECT_THAT(message, HasSubstr("is not a complete folder of prepared data"));
  EXPECT_THAT(message, HasSubstr("tessera prepare"));
}

TEST_F(LoaderTest, MissingSplitIsNamed) {
  PrepareOptions all = byte_options(folder_ / "in", folder_ / "all");
  all.held_out = 0;
  prepare(all, Logger());
  LoaderOptions held_out = options(1);
  held_out.split = Split::held_out;
  const TrainingData without = open_data({.directory = all.output.string(), .context = 0});
  EXPECT_THAT(error_of([&] { Loader(without, held_out); }), HasSubstr("has no held_out data"));
}

TEST_F(LoaderTest, ShardsOfAnotherSizeAreNamedAtTheStart) {
  const fs::path shard = data() / "train-00001.npy";
  const std::string good = read_file(shard);
  write_file(shard, good.substr(0, good.size() - 2));
  EXPECT_THAT(error_of([&] { open(); }),
              AllOf(HasSubstr(shard.string()), HasSubstr("size in bytes"), HasSubstr("prepare")));
  fs::remove(shard);
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr(shard.string()));
}

TEST_F(LoaderTest, ADamagedShardIsNamedWhenItsRowsAreReached) {
  const fs::path shard = data() / "train-00001.npy";
  std::string bytes = read_file(shard);
  bytes[128 + (3 * 16 + 5) * 2] ^= 1;  // in row 3, which stays within the vocabulary
  write_file(shard, bytes);
  Loader loader(open(), options(10));
  for (int i = 0; i < 4; ++i) EXPECT_NO_THROW(loader.next());  // the first shard, of 40 rows
  const LoaderState before = loader.state();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_of([&] { loader.next(); }),
                AllOf(HasSubstr(shard.string() + " is damaged in bytes 0 to 1407"),
                      HasSubstr("run prepare again with --overwrite")));
    EXPECT_EQ(loader.state(), before);
  }
  loader.seek({});
  EXPECT_NO_THROW(loader.next());
  EXPECT_THAT(error_of([&] { verify_prepared(data()); }), HasSubstr("train-00001.npy is damaged"));
}

TEST_F(LoaderTest, IdsOutsideTheModelsVocabularyAreNamedWithFileAndPlace) {
  LoaderOptions small = options(10);
  small.vocabulary_size = 256;  // without the end-of-document token
  const std::string message = error_of([&] { Loader(open(), small).next(); });
  std::vector<int32_t> row(16);
  const SplitReader reader(data(), Split::train);
  int64_t instance = 0;
  const auto bad = [&] { return std::ranges::find(row, 256) - row.begin(); };
  for (reader.read(0, row); bad() == 16; reader.read(++instance, row)) {
  }
  EXPECT_THAT(message, HasSubstr(fmt::format("train-00000.npy: token {} of row {} is the id 256, "
                                             "but the model has a vocabulary of 256",
                                             bad(), instance)));
  small.vocabulary_size = 257;
  EXPECT_NO_THROW(Loader(open(), small).next());
}

TEST_F(LoaderTest, AShardCutWhileItIsReadIsAnErrorThatNamesIt) {
  PrepareOptions large =
      byte_options(folder_.write("b.txt", random_text(5, 60'000)), folder_ / "large", 64);
  large.shard_tokens = 1 << 20;
  prepare(large, Logger());
  const fs::path shard = large.output / "train-00000.npy";
  ASSERT_GT(fs::file_size(shard), size_t{300'000});
  Loader loader(open_data({.directory = large.output.string(), .context = 0}), options(4));
  loader.next();
  fs::resize_file(shard, 70'000);
  const std::string message = error_of([&] {
    while (true) loader.next();
  });
  EXPECT_THAT(message, AllOf(HasSubstr(shard.string()), HasSubstr("cut short while it was read")));
}

TEST_F(LoaderTest, TamperedManifestsAreRefused) {
  const std::string good = read_file(data() / "manifest.json");
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"\"version\": 2", "\"version\": 3", "format version 3"},
      {"\"version\": 2", "\"version\": 1", "is damaged"},
      {"\"tessera-data\"", "\"other\"", "not a manifest of ours"},
      {"\"train-00000.npy\"", "\"../train-00000.npy\"", "not a plain name"},
      {"\"train-00000.npy\"", "5", "is damaged"},
      {"\"end_of_document\": 256", "\"end_of_document\": 257", "end-of-document"},
      {"\"instances\": 40", "\"instances\": 41", "do not add up"},
      {"\"train\"", "\"training\"", "is damaged"},
  };
  for (const auto& [what, by, message] : cases) {
    std::string text = good;
    ASSERT_NE(text.find(what), std::string::npos) << what;
    text.replace(text.find(what), what.size(), by);
    write_file(data() / "manifest.json", text);
    EXPECT_THAT(error_of([&] { open(); }), HasSubstr("manifest.json is damaged or was edited"));
    // What is wrong in itself is refused whatever its hash.
    write_file(data() / "manifest.json",
               with_hash_line("{\n" + text.substr(text.find("\n", 2) + 1)));
    EXPECT_THAT(error_of([&] { open(); }), HasSubstr(message)) << what;
  }
}

TEST_F(LoaderTest, ReadsAheadAsManyBatchesAsWereTakenAtOnce) {
  Loader loader(open(), options(2));
  Loader one_by_one(open(), options(2));
  EXPECT_EQ(loader.ready_batches(), 0) << "nothing was asked for yet";
  const auto wait_for_ready = [&](int64_t batches) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (loader.ready_batches() < batches && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(loader.ready_batches(), batches);
  };
  loader.next();
  one_by_one.next();
  wait_for_ready(4);
  for (const int64_t count : {11, 3, 11}) {
    for (const Batch& batch : loader.next(count)) ASSERT_EQ(batch, one_by_one.next());
    EXPECT_EQ(loader.state(), one_by_one.state());
    wait_for_ready(11);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(loader.ready_batches(), 11) << "no more than that";
}

TEST_F(LoaderTest, EndsWhileReadingAhead) {
  for (int i = 0; i < 50; ++i) {
    LoaderOptions many = options(3);
    many.read_ahead = 1 + i % 5;
    Loader loader(open(), many);
    if (i % 2 == 0) loader.next();
    if (i % 3 != 0) continue;
    loader.seek({{{1, 2, 9}}});
    EXPECT_EQ(position(loader), (SourcePosition{1, 2, 9}));
  }
}

}  // namespace
}  // namespace tessera
