#include <sstream>

#include <gtest/gtest.h>

#include "data/shards/split_reader.h"
#include "data/sources/open_data.h"
#include "data/support.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Folders that programs of their day wrote, kept as they are: tomorrow's must read them. Made in
// tests/fixtures/golden by
//
//   tessera prepare --input corpus --output prepared-vN --tokenizer bytes --context 16 --seed 5
//     --held-out 0.1 --shard-tokens 1280 --threads 1
//
// with the program of commit 3048a91 for version 1, and with the one that introduced version 2.
// prepared-rows.txt holds the rows of version 1, split after split, which were read out of the
// shards without any code of ours. A new format version adds a folder and keeps these.
class GoldenPreparedTest : public ::testing::TestWithParam<int64_t> {
 protected:
  static fs::path golden() { return fs::path(TESSERA_SOURCE) / "tests/fixtures/golden"; }
  static fs::path data() { return golden() / fmt::format("prepared-v{}", GetParam()); }
};

TEST_P(GoldenPreparedTest, GivesTheRowsThatWereRecorded) {
  const TrainingData opened = open_data({.directory = data().string(), .context = 16});
  const InstanceSource& source = *opened.sources[0].instances;
  std::istringstream recorded(read_file(golden() / "prepared-rows.txt"));
  for (const Split split : {Split::train, Split::held_out}) {
    ASSERT_EQ(source.instances(split), split == Split::train ? 142 : 16);
    std::vector<int32_t> row(16);
    for (int64_t instance = 0; instance < source.instances(split); ++instance) {
      std::string line;
      ASSERT_TRUE(std::getline(recorded, line));
      source.read(split, 0, instance, row);
      std::string found(split_name(split));
      for (const int32_t token : row) found += fmt::format(" {}", token);
      ASSERT_EQ(found, line);
    }
  }
}

TEST_P(GoldenPreparedTest, IsWholeAndSaysWhatItIs) {
  EXPECT_NO_THROW(verify_prepared(data()));
  const Manifest manifest = read_manifest(data());
  EXPECT_EQ(manifest.version, GetParam());
  EXPECT_EQ(manifest.tokens, 2534);
  EXPECT_EQ(manifest.documents, 21);
  EXPECT_EQ(manifest.recipe.seed, 5U);
  EXPECT_EQ(manifest.train.shards.size(), 2U);
  EXPECT_EQ(load_tokenizer(data())->vocabulary_size(), 257);
}

TEST_P(GoldenPreparedTest, HasTheFingerprintThatCheckpointsKept) {
  // As a checkpoint of a run of that day has it (data.0.fingerprint): such a run resumes.
  const TrainingData opened = open_data({.directory = data().string(), .context = 16});
  EXPECT_EQ(opened.sources[0].instances->fingerprint(), "d525cd865e578504");
  EXPECT_EQ(opened.tokenizer.fingerprint, "2b8341e684dc0c6c");
}

TEST_P(GoldenPreparedTest, ADamagedCopyIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const CounterRandom random(2, "flips");
  uint64_t draw = 0;
  for (const std::string name :
       {"train-00000.npy", "train-00001.npy", "held_out-00000.npy", "tokenizer.json"}) {
    fs::copy(data(), folder / "copy",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    const std::string good = read_file(folder / "copy" / name);
    for (int i = 0; i < 25; ++i, ++draw) {
      std::string bad = good;
      bad[random.bits(2 * draw) % bad.size()] ^=
          static_cast<char>(1 << (random.bits(2 * draw + 1) % 8));
      write_quickly(folder / "copy" / name, bad);
      const std::string message = error_of([&] {
        const TrainingData opened =
            open_data({.directory = (folder / "copy").string(), .context = 16});
        const InstanceSource& source = *opened.sources[0].instances;
        std::vector<int32_t> row(static_cast<size_t>(source.context()));
        for (const Split split : {Split::train, Split::held_out}) {
          for (int64_t at = 0; at < source.instances(split); ++at) source.read(split, 0, at, row);
        }
      });
      ASSERT_THAT(message, HasSubstr((folder / "copy" / name).string()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, GoldenPreparedTest, ::testing::Values(1, 2));

TEST(GoldenPrepared, AnotherEndOfDocumentInAnUnhashedManifestIsSeenByTheTokenizer) {
  const TemporaryFolder folder;
  fs::copy(fs::path(TESSERA_SOURCE) / "tests/fixtures/golden/prepared-v1", folder / "copy");
  std::string text = read_file(folder / "copy/manifest.json");
  const std::string good = "\"end_of_document\": 256";
  text.replace(text.find(good), good.size(), "\"end_of_document\": 252");  // one flipped bit
  write_quickly(folder / "copy/manifest.json", text);
  EXPECT_THAT(
      error_of([&] { open_data({.directory = (folder / "copy").string(), .context = 16}); }),
      HasSubstr("its end-of-document token 256 instead of 252"));
}

}  // namespace
}  // namespace tessera
