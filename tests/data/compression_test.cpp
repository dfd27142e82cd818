#include "data/corpus/compression.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "data/corpus/documents.h"
#include "data/read_documents.h"
#include "data/support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

fs::path compressed_fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests/fixtures/corpora" / name;
}

std::string gzip(std::string_view text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - state.avail_out);
  deflateEnd(&state);
  return packed;
}

std::string zstd(std::string_view text) {
  ZSTD_CCtx* state = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress2(state, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(state);
  return packed;
}

std::string pack(Compression compression, std::string_view text) {
  return compression == Compression::gzip ? gzip(text) : zstd(text);
}

std::string unpack(const fs::path& path, size_t piece = 4096) {
  Decompressor input(path, detect_compression(path));
  std::string text;
  std::string buffer(piece, '\0');
  while (const size_t filled = input.read(std::span(buffer.data(), buffer.size()))) {
    text.append(buffer, 0, filled);
    if (filled < buffer.size()) {
      EXPECT_EQ(input.read(std::span(buffer.data(), buffer.size())), 0U) << "more after the end";
      break;
    }
  }
  return text;
}

TEST(Compression, WhatPythonPackedIsUnpacked) {
  const std::string documents = read_file(compressed_fixture("documents.jsonl"));
  for (const char* name : {"one_member.jsonl.gz", "members.jsonl.gz", "one_frame.jsonl.zst",
                           "frames.jsonl.zst", "long_window.jsonl.zst"}) {
    for (const size_t piece : {1000, 1 << 20}) {
      EXPECT_TRUE(unpack(compressed_fixture(name), piece) == documents) << name;
    }
  }
  const std::string text = read_file(compressed_fixture("document.txt"));
  EXPECT_EQ(unpack(compressed_fixture("document.TXT.GZ")), text);
  EXPECT_EQ(unpack(compressed_fixture("document.txt.zst")), text);
}

RC_GTEST_PROP(Compression, AnyPartsComeBackJoined, (const std::vector<std::string>& parts)) {
  const TemporaryFolder folder;
  RC_PRE(!parts.empty());
  const auto compression = *rc::gen::element(Compression::gzip, Compression::zstd);
  std::string packed;
  std::string text = "plain: ";  // so that what is unpacked does not look packed itself
  packed += pack(compression, text);
  for (const std::string& part : parts) {
    packed += pack(compression, part);
    text += part;
  }
  const fs::path path =
      write_quickly(folder / (compression == Compression::gzip ? "a.gz" : "a.zst"), packed);
  RC_ASSERT(unpack(path, 600) == text);
}

constexpr std::pair<Compression, const char*> kPacked[] = {{Compression::gzip, "a.txt.gz"},
                                                           {Compression::zstd, "a.txt.zst"}};

TEST(Compression, EveryTruncationIsNamed) {
  const TemporaryFolder folder;
  for (const auto& [compression, name] : kPacked) {
    const std::string whole = pack(compression, random_text(1, 30));
    for (size_t length = 0; length < whole.size(); ++length) {
      const fs::path path = write_quickly(folder / name, whole.substr(0, length));
      const std::string message = error_of([&] { unpack(path); });
      ASSERT_THAT(message, HasSubstr(name)) << length;
      if (length < 4) continue;
      ASSERT_THAT(
          message,
          AllOf(HasSubstr("cut short"),
                HasSubstr(fmt::format("at byte {} of its {} compressed bytes", length, length))));
    }
  }
}

TEST(Compression, ADamagedBitIsNamedOrHarmless) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 30);
  for (const auto& [compression, name] : kPacked) {
    const std::string whole = pack(compression, text);
    size_t refused = 0;
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      const fs::path path = write_quickly(folder / name, damaged);
      try {
        ASSERT_TRUE(unpack(path) == text) << name << " with byte " << at << " damaged";
      } catch (const Error& error) {
        ++refused;
        ASSERT_THAT(error.what(), HasSubstr(name));
      }
    }
    EXPECT_GT(refused, whole.size() - 10);  // but for gzip's time and system
  }
}

TEST(Compression, BytesBehindTheDataAreRefused) {
  const TemporaryFolder folder;
  for (const auto& [name, packed] :
       {std::pair{"a.txt.gz", gzip("text")}, std::pair{"a.txt.zst", zstd("text")}}) {
    for (const std::string tail : {"garbage", "\n", "\x1F\x8B\x07"}) {
      const fs::path path = write_quickly(folder / name, packed + tail);
      EXPECT_THAT(error_of([&] { unpack(path); }),
                  AllOf(HasSubstr(name), HasSubstr(fmt::format("byte {}", packed.size()))))
          << tail;
    }
  }
}

/// As gzip does; zstd does not.
TEST(Compression, ZerosMayFollowGzipData) {
  const TemporaryFolder folder;
  const std::string zeros(512, '\0');
  EXPECT_EQ(unpack(write_quickly(folder / "a.txt.gz", gzip("text") + gzip("more") + zeros)),
            "textmore");
  for (const auto& [name, bytes] : {std::pair{"b.txt.gz", gzip("text") + zeros + gzip("more")},
                                    std::pair{"c.txt.gz", gzip("text") + zeros + "x"},
                                    std::pair{"d.txt.zst", zstd("text") + zeros}}) {
    EXPECT_THAT(error_of([&] { unpack(write_quickly(folder / name, bytes)); }),
                HasSubstr("follow"));
  }
}

TEST(Compression, AFileThatIsCutWhileItIsReadIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  std::string text;  // that does not shrink much
  const CounterRandom random(5, "bytes");
  for (uint64_t i = 0; i < 500'000; ++i) {
    const uint64_t bits = random.bits(i);
    text.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  for (const auto& [compression, name] :
       {std::pair(Compression::gzip, "a.gz"), std::pair(Compression::zstd, "a.zst")}) {
    const fs::path path = write_quickly(folder / name, pack(compression, text));
    Decompressor input(path, compression);
    std::string buffer(10'000, '\0');
    ASSERT_EQ(input.read(buffer), buffer.size());
    fs::resize_file(path, 1000);
    const std::string error = error_of([&] {
      while (input.read(buffer) == buffer.size()) {
      }
    });
    EXPECT_THAT(error, AllOf(HasSubstr(path.string()), HasSubstr("was cut short"))) << name;
  }
}

TEST(Compression, NameAndContentMustAgree) {
  const TemporaryFolder folder;
  const auto message = [&](const char* name, const std::string& content) {
    return error_of([&] { detect_compression(write_quickly(folder / name, content)); });
  };
  EXPECT_THAT(message("a.txt.gz", "plain"), HasSubstr("does not begin as such data does"));
  EXPECT_THAT(message("a.txt.gz", ""), HasSubstr("it is empty"));
  EXPECT_THAT(message("a.txt.zst", gzip("x")), HasSubstr("it holds the other compression's"));
  EXPECT_THAT(message("a.txt", gzip("x")), HasSubstr("its name does not end in .gz"));
  EXPECT_THAT(message("a.jsonl", zstd("x")), HasSubstr("its name does not end in .zst"));
  EXPECT_EQ(detect_compression(write_quickly(folder / "A.JSONL.GZ", gzip("x"))), Compression::gzip);
  EXPECT_EQ(detect_compression(write_quickly(folder / "a.ZST", zstd("x"))), Compression::zstd);
  EXPECT_EQ(detect_compression(write_quickly(folder / "a.txt", "x")), Compression::none);
}

TEST(Compression, OtherKindsOfFilesAreRefusedByName) {
  const TemporaryFolder folder;
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {std::string("\xFD\x37zXZ\0", 6), "an xz"},
      {"BZh91AY&SY", "a bzip2"},
      {"PK\x03\x04", "a zip"},
      {"PAR1", "a Parquet"},
      {tar, "a tar"},
  };
  const std::vector<std::pair<std::string, std::string>> encodings = {
      {std::string("\xFF\xFE{\0", 4), "UTF-16"},
      {std::string("\xFE\xFF\0{", 4), "UTF-16"},
      {std::string("\xFF\xFE\0\0{\0\0\0", 8), "UTF-32"},
      {std::string("\0\0\xFE\xFF\0\0\0{", 8), "UTF-32"},
  };
  for (const auto& [content, name] : encodings) {
    const std::string expected = name + " text, by its byte-order mark; expected UTF-8";
    EXPECT_THAT(error_of([&] { detect_compression(write_quickly(folder / "a.jsonl", content)); }),
                HasSubstr("a.jsonl is " + expected));
    const fs::path inside = write_quickly(folder / "b.jsonl.gz", gzip(content));
    EXPECT_THAT(error_of([&] { unpack(inside); }),
                HasSubstr("b.jsonl.gz unpacks to is " + expected));
  }
  std::string latin;  // in UTF-16, without a mark
  for (const char letter : std::string_view("{\"text\": \"words\"}\n")) latin += {letter, '\0'};
  EXPECT_THAT(error_of([&] { detect_compression(write_quickly(folder / "c.jsonl", latin)); }),
              HasSubstr("c.jsonl looks like UTF-16 or UTF-32 without a byte-order mark: 18 of its "
                        "first 36 bytes are zero"));
  EXPECT_EQ(detect_compression(write_quickly(folder / "d.txt", std::string("a\0b", 3) + "words")),
            Compression::none);
  for (const auto& [content, kind] : kinds) {
    EXPECT_THAT(error_of([&] { detect_compression(write_quickly(folder / "a.txt", content)); }),
                HasSubstr(kind + " file"));
    const fs::path inside = write_quickly(folder / "b.txt.gz", gzip(content));
    EXPECT_THAT(error_of([&] { unpack(inside); }),
                AllOf(HasSubstr("b.txt.gz unpacks to"), HasSubstr(kind + " file")));
  }
  EXPECT_THAT(error_of([&] { unpack(write_quickly(folder / "c.txt.gz", gzip(zstd("x")))); }),
              HasSubstr("once more zstd"));
}

TEST(Compression, AWindowBeyondWhatCanBeUnpackedIsNamed) {
  const TemporaryFolder folder;
  // A frame header that states a window of 2^41 bytes and more, and an empty last block.
  const std::string frame("\x28\xB5\x2F\xFD\x00\xFF\x01\x00\x00", 9);
  EXPECT_THAT(error_of([&] { unpack(write_quickly(folder / "a.txt.zst", frame)); }),
              AllOf(HasSubstr("a.txt.zst"), HasSubstr("window beyond 2 GiB")));
}

/// The documents of one file, and descriptions of its bad lines.
struct Read : testing::ReadDocuments {
  std::vector<std::string> bad_lines;
};

Read read_documents(const fs::path& path, const ReadOptions& options = {}) {
  const Corpus corpus = scan_inputs({path.string()}, "", Logger());
  Read read{testing::read_all(corpus, int64_t{1} << 30, options), {}};
  for (const BadLine& line : read.statistics.first_bad_lines) {
    read.bad_lines.push_back(describe_bad_line(corpus, line));
  }
  return read;
}

TEST(CompressedDocuments, AreThoseOfTheUnpackedFile) {
  const Read plain = read_documents(compressed_fixture("documents.jsonl"));
  ASSERT_EQ(plain.documents.size(), 60U);
  for (const char* name : {"one_member.jsonl.gz", "members.jsonl.gz", "frames.jsonl.zst"}) {
    const Read packed = read_documents(compressed_fixture(name));
    EXPECT_EQ(packed.documents, plain.documents) << name;
    EXPECT_EQ(packed.statistics, plain.statistics) << name;
  }
  const Read text = read_documents(compressed_fixture("document.txt"));
  EXPECT_EQ(read_documents(compressed_fixture("document.TXT.GZ")).documents, text.documents);
  EXPECT_EQ(read_documents(compressed_fixture("document.txt.zst")).documents, text.documents);
}

RC_GTEST_PROP(CompressedDocuments, AreThoseOfTheUnpackedFileWhateverItHolds, ()) {
  const TemporaryFolder folder;
  auto text = *rc::gen::container<std::string>(
      rc::gen::element('a', '{', '"', ' ', '\n', '\r', '\xC3', '\xA9', '\xEF', '\xBB', '\xBF'));
  RC_PRE(!text.empty());
  text = *rc::gen::element<std::string>("", "\xEF\xBB\xBF", "{\"text\": \"x\"}\n") + text;
  const auto format = *rc::gen::element<std::string>(".jsonl", ".txt");
  const Read plain = read_documents(write_quickly(folder / ("a" + format), text));
  for (const auto& [suffix, packed] :
       {std::pair{".gz", gzip(text)}, std::pair{".zst", zstd(text)}}) {
    const Read read = read_documents(write_quickly(folder / ("a" + format + suffix), packed));
    RC_ASSERT(read.documents == plain.documents);
    RC_ASSERT(read.statistics.bad_lines == plain.statistics.bad_lines);
    RC_ASSERT(read.statistics.invalid_utf8 == plain.statistics.invalid_utf8);
    RC_ASSERT(read.statistics.empty_documents == plain.statistics.empty_documents);
  }
}

TEST(CompressedDocuments, ALongTextComesInThePiecesOfTheUnpackedOne) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 800000);
  ASSERT_GT(text.size(), size_t{3} << 20);
  const Read plain = read_documents(write_quickly(folder / "a.txt", text));
  const Read packed = read_documents(write_quickly(folder / "b.txt.gz", gzip(text)));
  EXPECT_TRUE(packed.documents == plain.documents);
  EXPECT_EQ(packed.longest_piece, plain.longest_piece);
  const Read line = read_documents(write_quickly(
      folder / "c.jsonl.zst", zstd("{\"text\": \"" + std::string(5 << 20, 'a') + "\"}")));
  EXPECT_EQ(line.documents.at(0).size(), size_t{5} << 20);
  EXPECT_LE(line.longest_piece, kLongestPiece);
}

TEST(CompressedDocuments, AHugeRatioCostsNoMemory) {
  // 96 MiB out of 100 KiB, none of which is kept: pieces stay short, the line is left out.
  const TemporaryFolder folder;
  const std::string bomb(size_t{96} << 20, 'a');
  const ReadOptions options{.longest_line = 1 << 20};
  size_t bytes = 0;
  size_t longest = 0;
  ReadStatistics statistics;
  for (const char* name : {"a.txt.zst", "a.jsonl.zst"}) {
    const Corpus corpus =
        scan_inputs({write_quickly(folder / name, zstd(bomb)).string()}, "", Logger());
    read_slice(corpus, {0, 0, corpus.bytes}, options, statistics,
               [&](std::string_view piece, bool) {
                 bytes += piece.size();
                 longest = std::max(longest, piece.size());
               });
  }
  EXPECT_EQ(bytes, bomb.size());
  EXPECT_LE(longest, kLongestPiece);
  EXPECT_EQ(statistics.bad_lines, 1);
}

TEST(CompressedDocuments, LinesThatAreTooLongAreBadWhetherPackedOrNot) {
  const TemporaryFolder folder;
  const std::string text = "{\"text\": \"one\"}\n{\"text\": \"" + std::string(3 << 20, 'x') +
                           "\"}\n{\"text\": \"two\"}\n";
  const ReadOptions options{.longest_line = 1000};
  for (const auto& [name, content] :
       {std::pair{"a.jsonl", text}, std::pair{"a.jsonl.gz", gzip(text)},
        std::pair{"a.jsonl.zst", zstd(text)}}) {
    const Read read = read_documents(write_quickly(folder / name, content), options);
    EXPECT_THAT(read.documents, ElementsAre("one", "two")) << name;
    EXPECT_THAT(read.bad_lines,
                ElementsAre(HasSubstr(std::string(name) + ":2: a line of more than 1000 bytes")));
  }
}

TEST(CompressedDocuments, BadLinesAndBrokenTextAreNamedWithTheLineOfTheUnpackedFile) {
  const TemporaryFolder folder;
  const std::string text = "{\"text\": \"good\"}\n\n{\"other\": 1}\n{\"text\": \"caf\xE9\"}\n";
  const fs::path path = write_quickly(folder / "a.jsonl.gz", gzip(text));
  EXPECT_THAT(read_documents(path).bad_lines,
              ElementsAre(HasSubstr("a.jsonl.gz:3: no field \"text\"")));
  EXPECT_THAT(error_of([&] { read_documents(path, {.fail_on_invalid_utf8 = true}); }),
              HasSubstr("a.jsonl.gz holds broken UTF-8 at or after line 4"));
}

TEST(CompressedDocuments, AFileIsOneSlice) {
  const TemporaryFolder folder;
  const fs::path path = write_quickly(folder / "a.txt.gz", gzip(random_text(1, 5000)));
  const Corpus corpus = scan_inputs({path.string()}, "", Logger());
  EXPECT_EQ(plan_items(corpus, 100), (std::vector<WorkItem>{{{0, 0, corpus.bytes}}}));
}

TEST(CompressedDocuments, ATextFieldMayBeInsideOfAnother) {
  const TemporaryFolder folder;
  const fs::path path =
      folder.write("a.jsonl",
                   "{\"content\": {\"text\": \"inner\"}}\n"
                   "{\"content\": {\"text\": \"no\"}, \"content.text\": \"exact\"}\n"
                   "{\"content\": \"text\"}\n"
                   "{\"content\": {\"text\": 5}}\n"
                   "{\"content\": {\"other\": \"no\"}}\n");
  const Read read = read_documents(path, {.text_field = "content.text"});
  EXPECT_THAT(read.documents, ElementsAre("inner", "exact"));
  EXPECT_THAT(read.bad_lines,
              ElementsAre(HasSubstr(":3: no field \"content.text\""),
                          HasSubstr(":4: the field \"content.text\" is not a string"),
                          HasSubstr(":5: no field \"content.text\"")));
  const fs::path deep =
      write_quickly(folder / "b.jsonl", "{\"a\": {\"b\": {\"c\": \"no\"}, \"b.c\": \"deep\"}}\n");
  EXPECT_THAT(read_documents(deep, {.text_field = "a.b.c"}).documents, ElementsAre("deep"));
}

TEST(CompressedPrepare, WritesTheShardsOfThePlainInput) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 1000);
  const std::string lines = read_file(compressed_fixture("documents.jsonl"));
  folder.write("plain/1.txt", text);
  folder.write("plain/2.jsonl", lines);
  folder.write("packed/1.txt.gz", gzip(text));
  folder.write("packed/2.jsonl.zst", zstd(lines));
  const auto shards = [&](const char* name) {
    return prepare(byte_options(folder / name, folder / "out" / name), Logger()).manifest;
  };
  const Manifest plain = shards("plain");
  const Manifest packed = shards("packed");
  EXPECT_GT(plain.train.shards.size(), 5U);
  EXPECT_EQ(packed.train.shards, plain.train.shards);
  EXPECT_EQ(packed.held_out.shards, plain.held_out.shards);
  EXPECT_EQ(packed.recipe.inputs.at(0).compression, Compression::gzip);
  EXPECT_EQ(packed.recipe.inputs.at(1).format, Format::jsonl);
}

TEST(CompressedPrepare, ADamagedFileEndsItAndNothingIsComplete) {
  const TemporaryFolder folder;
  const std::string packed = gzip(random_text(1, 1000));
  folder.write("in/a.txt.gz", packed.substr(0, packed.size() - 9));
  const PrepareOptions options = byte_options(folder / "in", folder / "out");
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("cut short"));
  EXPECT_FALSE(fs::exists(folder / "out/manifest.json"));
}

TEST(CompressedPrepare, ATokenizerIsTrainedOnTheBeginningsOfFiles) {
  const TemporaryFolder folder;
  folder.write("in/a.txt.gz", gzip(random_text(1, 30000)));
  PrepareOptions options = byte_options(folder / "in", folder / "out");
  options.tokenizer = "";
  options.train_tokenizer = 300;
  options.tokenizer_sample_bytes = 4096;
  EXPECT_EQ(prepare(options, Logger()).manifest.vocabulary_size, 300);
}

}  // namespace
}  // namespace tessera
