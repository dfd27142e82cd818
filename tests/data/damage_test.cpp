#include <algorithm>
#include <memory>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/loader.h"
#include "data/shards/block_hashes.h"
#include "data/sources/open_data.h"
#include "data/support.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Options that need no disk to be flushed and give shards of some blocks each.
PrepareOptions large_shards(const TemporaryFolder& folder) {
  PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(1, 60'000)), folder / "data", 64);
  options.shard_tokens = 100'000;  // 200 kB, so four blocks
  options.item_bytes = 100'000;
  return options;
}

/// A folder that is prepared once for many damages.
class DamagedDataTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    manifest_ = prepare(large_shards(*folder_), Logger()).manifest;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static fs::path data() { return *folder_ / "data"; }

  /// Reads every row of both splits, as training and evaluation do.
  static void read_everything() {
    const TrainingData data =
        open_data({.directory = DamagedDataTest::data().string(), .context = 64});
    for (const Split split : {Split::train, Split::held_out}) {
      Loader loader(data, {.split = split, .rows = 16});
      for (int64_t done = 0; done < loader.instances(); done += 16) loader.next();
    }
  }

  /// What reading everything says while one bit of a file is flipped.
  static std::string error_with_flip(const std::string& name, int64_t byte, int bit) {
    const fs::path path = data() / name;
    const std::string good = read_file(path);
    std::string bad = good;
    bad[static_cast<size_t>(byte)] = static_cast<char>(bad[static_cast<size_t>(byte)] ^ (1 << bit));
    write_quickly(path, bad);
    std::string message = "";
    try {
      read_everything();
    } catch (const Error& error) {
      message = error.what();
    }
    write_quickly(path, good);
    return message;
  }

  static std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(data())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline Manifest manifest_;
};

TEST_F(DamagedDataTest, WithoutDamageEveryRowIsRead) {
  EXPECT_NO_THROW(read_everything());
  EXPECT_NO_THROW(verify_prepared(data()));
  EXPECT_GT(manifest_.train.shards.size(), 1U);
  EXPECT_GT(manifest_.train.shards.front().bytes, 3 * kHashBlockBytes);
}

TEST_F(DamagedDataTest, AnyFlippedBitOfAnyFileIsAnErrorThatNamesTheFile) {
  const std::vector<std::string> files = names();
  EXPECT_TRUE(std::ranges::count(files, "train-00000.xxh3") == 1);
  EXPECT_TRUE(std::ranges::count(files, "tokenizer.json") == 1);
  const CounterRandom random(1, "flips");
  uint64_t draw = 0;
  for (const std::string& name : files) {
    const auto size = static_cast<uint64_t>(fs::file_size(data() / name));
    for (int i = 0; i < 12; ++i, ++draw) {
      const auto byte = static_cast<int64_t>(random.bits(2 * draw) % size);
      const int bit = static_cast<int>(random.bits(2 * draw + 1) % 8);
      ASSERT_THAT(error_with_flip(name, byte, bit), HasSubstr((data() / name).string()))
          << "bit " << bit << " of byte " << byte;
    }
  }
}

TEST_F(DamagedDataTest, AnyFlippedBitOfTheManifestsStartIsAnError) {
  for (int64_t byte = 0; byte < 80; ++byte) {
    ASSERT_THAT(error_with_flip("manifest.json", byte, static_cast<int>(byte % 8)),
                HasSubstr("manifest.json"))
        << byte;
  }
}

TEST_F(DamagedDataTest, TheErrorSaysWhichBytesAreDamagedAndWhatToDo) {
  EXPECT_THAT(error_with_flip("train-00000.npy", kHashBlockBytes + 7, 0),
              AllOf(HasSubstr("train-00000.npy is damaged in bytes 65536 to 131071"),
                    HasSubstr("restore the file, or run prepare again with --overwrite")));
  EXPECT_THAT(error_with_flip("train-00000.npy", 3, 0), HasSubstr("damaged in bytes 0 to 65535"));
}

TEST_F(DamagedDataTest, OnlyWhatIsReadIsVerified) {
  const fs::path path = data() / "train-00000.npy";
  const std::string good = read_file(path);
  std::string bad = good;
  bad[3 * kHashBlockBytes] ^= 1;
  write_quickly(path, bad);
  const auto source = open_data({.directory = data().string(), .context = 64}).sources[0].instances;
  std::vector<int32_t> row(64);
  EXPECT_NO_THROW(source->read(Split::train, 0, 0, row));
  const int64_t damaged_row = (3 * kHashBlockBytes - 128) / 128;
  EXPECT_THAT(error_of([&] { source->read(Split::train, 0, damaged_row, row); }),
              HasSubstr("damaged in bytes 196608"));
  write_quickly(path, good);
  EXPECT_NO_THROW(source->read(Split::train, 0, damaged_row, row)) << "nothing bad was kept";
}

TEST_F(DamagedDataTest, AFlippedTokenizerIsNotLoadedFromThePreparedFolder) {
  const fs::path path = data() / "tokenizer.json";
  const std::string good = read_file(path);
  write_quickly(path, "{\"kind\":  \"bytes\"}\n");  // the same tokenizer of other bytes
  EXPECT_THAT(error_of([&] { load_tokenizer(data()); }),
              AllOf(HasSubstr(path.string() + " is damaged"), HasSubstr("prepare again")));
  write_quickly(path, good);
  EXPECT_EQ(load_tokenizer(data())->fingerprint(), manifest_.tokenizer_fingerprint);
}

TEST(FileHasher, AnyPiecesGiveTheHashesOfTheWhole) {
  rc::check([] {
    const auto size = *rc::gen::inRange<int64_t>(0, 3 * kHashBlockBytes + 2);
    const std::string text = random_text(7, 60'000).substr(0, static_cast<size_t>(size));
    const auto bytes = std::as_bytes(std::span(text));
    FileHasher hasher;
    for (size_t begin = 0; begin < bytes.size();) {
      const auto piece = *rc::gen::element<size_t>(1, 128, 5000, 65'536, 100'000);
      const size_t length = std::min(piece, bytes.size() - begin);
      hasher.update(bytes.subspan(begin, length));
      begin += piece == 1 ? 1 : length;
      if (piece == 1 && begin < bytes.size()) {
        hasher.update(bytes.subspan(begin, bytes.size() - begin));
        break;
      }
    }
    const FileHashes hashes = hasher.finish();
    RC_ASSERT(hashes.whole == hash(text));
    std::vector<uint64_t> blocks;
    for (size_t begin = 0; begin < text.size(); begin += kHashBlockBytes) {
      blocks.push_back(hash(std::string_view(text).substr(begin, kHashBlockBytes)));
    }
    RC_ASSERT(hashes.blocks == blocks);
  });
}

}  // namespace
}  // namespace tessera
