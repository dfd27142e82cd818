#include "data/sources/token_files.h"

#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Stream = std::vector<int32_t>;

constexpr TokenIdRange kBytes{257, 256};

fs::path token_fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests/fixtures/token_files" / name;
}

Stream fixture_stream() {
  Stream stream;
  for (const auto& document : nlohmann::json::parse(read_file(token_fixture("documents.json")))) {
    for (const int32_t token : document) stream.push_back(token);
  }
  return stream;
}

Stream all(const StoredTokens& tokens) {
  Stream stream(static_cast<size_t>(tokens.tokens()));
  tokens.read(StreamIndex{0}, stream);
  return stream;
}

template <typename Number>
void append(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& values) {
  std::string bytes;
  for (const Number value : values) append(bytes, value);
  return bytes;
}

TEST(TokenFiles, TheFixturesHoldTheSameStream) {
  const Stream expected = fixture_stream();
  ASSERT_GT(expected.size(), 1000U);
  const std::string olmo = token_fixture("olmo-*.npy").string();
  for (const DocumentEnds ends : {DocumentEnds::add, DocumentEnds::present}) {
    EXPECT_EQ(all(open_megatron(token_fixture("ended"), ends, kBytes)), expected);
    EXPECT_EQ(all(open_token_files(olmo, TokenType::u16, ends, kBytes)), expected);
    for (const char* name : {"array.npy", "array_i64.npy"}) {
      EXPECT_EQ(all(open_token_files(token_fixture(name).string(), {}, ends, kBytes)), expected);
    }
  }
  EXPECT_EQ(all(open_megatron(token_fixture("bare"), DocumentEnds::add, kBytes)), expected);
  EXPECT_EQ(open_megatron(token_fixture("bare"), DocumentEnds::add, kBytes).added(), 14);
  EXPECT_THAT(error_of([] { open_megatron(token_fixture("bare"), DocumentEnds::present, kBytes); }),
              AllOf(HasSubstr("bare.idx: document 0 ends with token"),
                    HasSubstr("end_of_document = \"add\"")));
  for (const char* path : {"ended.idx", "ended.bin"}) {
    EXPECT_EQ(open_megatron(token_fixture(path), DocumentEnds::add, kBytes).tokens(),
              static_cast<int64_t>(expected.size()));
  }
}

RC_GTEST_PROP(TokenFiles, AnyPartOfAStreamIsRead, ()) {
  const Stream expected = fixture_stream();
  const auto size = static_cast<int64_t>(expected.size());
  const StreamIndex first{*rc::gen::inRange<int64_t>(0, size)};
  const int64_t count = *rc::gen::inRange<int64_t>(1, size - first.value + 1);
  const auto begin = expected.begin() + first.value;
  const Stream part(begin, begin + count);
  const StoredTokens sources[] = {open_megatron(token_fixture("bare"), DocumentEnds::add, kBytes),
                                  open_token_files(token_fixture("olmo-*.npy").string(),
                                                   TokenType::u16, DocumentEnds::add, kBytes)};
  for (const StoredTokens& tokens : sources) {
    Stream found(static_cast<size_t>(count));
    tokens.will_need(first, count);
    tokens.read(first, found);
    RC_ASSERT(found == part);
  }
}

TEST(TokenFiles, AFilesEndEndsADocument) {
  const TemporaryFolder folder;
  write_quickly(folder / "a.npy", bytes_of<uint16_t>({1, 2}));
  write_quickly(folder / "b.npy", bytes_of<uint16_t>({3, 256}));
  write_quickly(folder / "c.npy", bytes_of<uint16_t>({4}));
  const std::string pattern = (folder / "*.npy").string();
  EXPECT_EQ(all(open_token_files(pattern, TokenType::u16, DocumentEnds::add, kBytes)),
            (Stream{1, 2, 256, 3, 256, 4, 256}));
  EXPECT_EQ(all(open_token_files(pattern, TokenType::u16, DocumentEnds::present, kBytes)),
            (Stream{1, 2, 3, 256, 4}));
}

TEST(TokenFiles, AnIdOutsideTheVocabularyIsNamedWithItsFileAndPlace) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& content, TokenType type) {
    const fs::path path = write_quickly(folder / "a.npy", content);
    const StoredTokens tokens = open_token_files(path.string(), type, DocumentEnds::add, kBytes);
    return error_of([&] { all(tokens); });
  };
  EXPECT_THAT(message(bytes_of<uint16_t>({1, 2, 257}), TokenType::u16),
              HasSubstr("a.npy: token 2 is 257, outside the vocabulary of 257"));
  EXPECT_THAT(message(bytes_of<int32_t>({1, -1}), TokenType::i32), HasSubstr("token 1 is -1"));
  EXPECT_THAT(message(bytes_of<uint32_t>({0xFFFFFFFF}), TokenType::u32),
              HasSubstr("token 0 is 4294967295"));
  // An id that is right in its lowest 32 bits.
  EXPECT_THAT(message(bytes_of<int64_t>({1, (int64_t{1} << 32) + 5}), TokenType::i64),
              HasSubstr("token 1 is 4294967301"));
}

TEST(TokenFiles, AFileCutWhileItIsReadIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  const fs::path path = write_quickly(folder / "a.npy", bytes_of(std::vector<uint16_t>(50'000, 7)));
  const StoredTokens tokens =
      open_token_files(path.string(), TokenType::u16, DocumentEnds::add, kBytes);
  fs::resize_file(path, 20'000);
  Stream part(100);
  EXPECT_NO_THROW(tokens.read(StreamIndex{0}, part));
  EXPECT_THAT(error_of([&] { tokens.read(StreamIndex{40'000}, part); }),
              AllOf(HasSubstr(path.string()), HasSubstr("cut short while it was read")));
  tokens.will_need(StreamIndex{40'000}, 100);  // which is advice
}

TEST(TokenFiles, MoreFilesThanMayBeOpenAtOnceAreRead) {
  const TemporaryFolder folder;
  Stream expected;
  for (uint16_t i = 0; i < 300; ++i) {
    const auto token = static_cast<uint16_t>(i % 250);
    write_quickly(folder / fmt::format("{:04}.npy", i), bytes_of<uint16_t>({token, token, 256}));
    expected.insert(expected.end(), {token, token, 256});
  }
  const StoredTokens tokens =
      open_token_files((folder / "*.npy").string(), TokenType::u16, DocumentEnds::add, kBytes);
  EXPECT_EQ(all(tokens), expected);
  EXPECT_EQ(all(tokens), expected);
  write_quickly(folder / "0000.npy", "other");
  EXPECT_THAT(error_of([&] { all(tokens); }), HasSubstr("0000.npy has 5 bytes, but had 6"));
}

TEST(TokenFiles, WhatIsNoTokenFileIsRefused) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& content, std::optional<TokenType> type) {
    const fs::path path = write_quickly(folder / "a.npy", content);
    return error_of([&] { open_token_files(path.string(), type, DocumentEnds::add, kBytes); });
  };
  EXPECT_THAT(message("abcd", {}),
              HasSubstr("has no .npy header, so its element type must be said"));
  EXPECT_THAT(message("abc", TokenType::u16),
              HasSubstr("3 bytes, no multiple of the 2 of a uint16"));
  EXPECT_THAT(message("", TokenType::u16), HasSubstr("holds no tokens"));
  const std::string array = read_file(token_fixture("array.npy"));
  EXPECT_THAT(message(array, TokenType::u16), HasSubstr("holds uint32, as its header says"));
  for (size_t length = 6; length < array.size(); length += length < 140 ? 1 : 97) {
    EXPECT_THAT(message(array.substr(0, length), {}), HasSubstr("a.npy")) << length;
  }
  std::string floats = array;
  floats.replace(floats.find("<u4"), 3, "<f4");
  EXPECT_THAT(message(floats, {}),
              HasSubstr("type '<f4'; expected '<u2' or '<u4' or '<i4' or '<i8'"));
  std::string plane = array;
  const size_t shape = plane.find("(1116,)");
  ASSERT_NE(shape, std::string::npos);
  plane.replace(shape, 7, "(93,12)");
  EXPECT_THAT(message(plane, {}), HasSubstr("an array of 2 dimensions"));
  EXPECT_THAT(
      error_of([&] { open_token_files((folder / "x*").string(), {}, DocumentEnds::add, kBytes); }),
      HasSubstr("no input file matches"));
}

/// A Megatron index as its fields say, right or wrong.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int32_t> lengths{3, 2, 4};
  std::vector<int64_t> pointers{0, 6, 10};
  std::vector<int64_t> boundaries{0, 1, 3};
  std::optional<uint64_t> sequences{};
  std::optional<uint64_t> documents{};

  std::string bytes() const {
    std::string result = magic;
    append(result, version);
    append(result, type);
    append(result, sequences.value_or(lengths.size()));
    append(result, documents.value_or(boundaries.size()));
    return result + bytes_of(lengths) + bytes_of(pointers) + bytes_of(boundaries);
  }
};

class Megatron : public ::testing::Test {
 protected:
  StoredTokens open(const std::string& index) const {
    write_quickly(folder_ / "a.bin", bytes_of<uint16_t>({1, 2, 256, 3, 4, 5, 6, 7, 256}));
    write_quickly(folder_ / "a.idx", index);
    return open_megatron(folder_ / "a", DocumentEnds::add, kBytes);
  }
  std::string message(const Index& index) const {
    return error_of([&] { open(index.bytes()); });
  }

  TemporaryFolder folder_;
};

TEST_F(Megatron, TheGoodOneIsRead) {
  EXPECT_EQ(all(open(Index().bytes())), (Stream{1, 2, 256, 3, 4, 5, 6, 7, 256}));
  Index four;
  four.boundaries = {0, 1, 2, 3};
  EXPECT_EQ(all(open(four.bytes())), (Stream{1, 2, 256, 3, 4, 256, 5, 6, 7, 256}));
}

TEST_F(Megatron, EveryWrongFieldIsNamed) {
  EXPECT_THAT(message({.magic = "MMIDIDY__"}), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(message({.version = 2}), HasSubstr("version is 2, expected 1"));
  EXPECT_THAT(message({.type = 7}), HasSubstr("code 7 (float32)"));
  EXPECT_THAT(message({.type = 99}), HasSubstr("code 99; expected"));
  EXPECT_THAT(message({.type = 4}), HasSubstr("sequence 1 begins at byte 6 of the .bin file"));
  for (const uint64_t count : {uint64_t{4}, uint64_t{1} << 40, uint64_t{1} << 61, ~uint64_t{0}}) {
    EXPECT_THAT(message({.sequences = count}), HasSubstr("too few for the"));
    EXPECT_THAT(message({.documents = count}), HasSubstr("too few for the"));
  }
  EXPECT_THAT(message({.sequences = 2}), HasSubstr("bytes more than the 2 sequences"));
  EXPECT_THAT(message({.documents = 2}), HasSubstr("8 bytes more than the 3 sequences and 2"));
  EXPECT_THAT(message({.lengths = {3, -2, 4}}), HasSubstr("sequence 1 has a length of -2"));
  EXPECT_THAT(message({.lengths = {3, 2, 5}}), HasSubstr("sequence 2 reaches to byte 20 of"));
  EXPECT_THAT(message({.lengths = {3, 2, 0x7FFFFFFF}}), HasSubstr("sequence 2 reaches to byte"));
  EXPECT_THAT(message({.lengths = {3, 2, 3}}), HasSubstr("the two files do not belong together"));
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const int64_t pointer : {int64_t{4}, int64_t{8}, int64_t{-6}, huge, -huge}) {
    EXPECT_THAT(message({.pointers = {0, pointer, 10}}),
                HasSubstr(fmt::format("sequence 1 begins at byte {}", pointer)));
  }
  EXPECT_THAT(message({.pointers = {2, 6, 10}}), HasSubstr("sequence 0 begins at byte 2"));
  EXPECT_THAT(message({.boundaries = {1, 3}}), HasSubstr("first document does not begin at 0"));
  EXPECT_THAT(message({.boundaries = {}}), HasSubstr("first document does not begin at 0"));
  EXPECT_THAT(message({.boundaries = {0, 2, 1, 3}}), HasSubstr("document 1 ends at sequence 1"));
  EXPECT_THAT(message({.boundaries = {0, 4, 3}}), HasSubstr("document 0 ends at sequence 4"));
  EXPECT_THAT(message({.boundaries = {0, huge}}), HasSubstr("document 0 ends at sequence"));
  EXPECT_THAT(message({.boundaries = {0, -1, 3}}), HasSubstr("document 0 ends at sequence -1"));
  EXPECT_THAT(message({.boundaries = {0, 2}}), HasSubstr("documents end at sequence 2 of 3"));
  EXPECT_THAT(error_of([&] { open(Index().bytes() + "abc"); }), HasSubstr("a mode for each"));
}

TEST_F(Megatron, EveryTruncationIsNamed) {
  const std::string whole = Index().bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(error_of([&] { open(whole.substr(0, length)); }), HasSubstr("a.idx")) << length;
  }
  open(whole);
  const std::string bin = read_file(folder_ / "a.bin");
  for (size_t length = 0; length < bin.size(); ++length) {
    write_quickly(folder_ / "a.bin", bin.substr(0, length));
    const std::string found =
        error_of([&] { open_megatron(folder_ / "a", DocumentEnds::add, kBytes); });
    EXPECT_THAT(found, AllOf(HasSubstr("a.idx"), HasSubstr("reaches to byte"))) << length;
  }
  fs::remove(folder_ / "a.bin");
  EXPECT_THAT(error_of([&] { open_megatron(folder_ / "a", DocumentEnds::add, kBytes); }),
              HasSubstr("a.bin"));
}

TEST_F(Megatron, DamagedBytesAreRefusedOrReadWithinBounds) {
  const std::string whole = Index().bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {1, 0x80, 0xFF}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      try {
        EXPECT_GE(all(open(damaged)).size(), 9U);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr((folder_ / "a").string()));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
