#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "checkpoint/safetensors_reader.h"
#include "checkpoint/safetensors_types.h"
#include "checkpoint/safetensors_writer.h"
#include "sample.h"
#include "support/error_of.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string little_endian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

TEST(Safetensors, BytesAreThoseOfTheFormat) {
  const TemporaryFolder folder;
  std::vector<float> numbers{1.0F, -2.0F};
  std::vector<uint8_t> codes{7, 8, 9};
  const std::vector<SafetensorsItem> items{
      {"codes", Tensor::wrap(codes.data(), {3}, DType::u8)},
      {"a \"name\"", Tensor::wrap(numbers.data(), {1, 2}, DType::f32)}};
  const auto summary = write_safetensors(folder / "x.safetensors", items, {{"format", "pt"}});

  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a \"name\"":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("codes":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string expected =
      little_endian(header.size()) + header + std::string("\0\0\x80\x3f\0\0\0\xc0\x07\x08\x09", 11);
  const std::string found = read_file(folder / "x.safetensors");
  EXPECT_EQ(found, expected);
  EXPECT_EQ(summary.bytes, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(summary.header_hash, hash(std::string_view(expected).substr(0, 8 + header.size())));
  EXPECT_THAT(summary.hashes[0], ElementsAre(hash(std::string_view("\x07\x08\x09"))));
  EXPECT_THAT(summary.hashes[1], ElementsAre(hash(std::as_bytes(std::span<const float>(numbers)))));
}

TEST(Safetensors, EveryTypeComesBack) {
  const TemporaryFolder folder;
  const SampleTensors tensors = sample_tensors();
  std::vector<SafetensorsItem> items;
  for (const NamedTensor& item : tensors.items()) items.push_back({item.label(), item.tensor});
  const auto summary = write_safetensors(folder / "x.safetensors", items);
  const SafetensorsReader reader(folder / "x.safetensors");
  ASSERT_EQ(reader.entries().size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const SafetensorsEntry* entry = reader.find(items[i].name);
    ASSERT_NE(entry, nullptr) << items[i].name;
    const Tensor& tensor = items[i].tensor;
    EXPECT_EQ(dtype_from_safetensors(entry->dtype), tensor.dtype());
    EXPECT_EQ(Shape(entry->shape), tensor.shape());
    EXPECT_EQ(entry->begin % dtype_size(tensor.dtype()), 0) << "not aligned";
    const std::span<const std::byte> expected(tensor.raw(), static_cast<size_t>(tensor.bytes()));
    EXPECT_TRUE(std::ranges::equal(reader.read(*entry), expected)) << items[i].name;
    EXPECT_THAT(summary.hashes[i], ElementsAre(hash(expected)));
  }
  EXPECT_EQ(reader.header_bytes() % 8, 0);
  EXPECT_EQ(reader.find("absent"), nullptr);
}

TEST(Safetensors, NoTensorsAtAll) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x.safetensors", {});
  EXPECT_TRUE(SafetensorsReader(folder / "x.safetensors").entries().empty());
}

TEST(Safetensors, LargeTensorsAreWrittenInPieces) {
  const TemporaryFolder folder;
  SampleTensors tensors;
  const Tensor large = tensors.add("g", "large", {3, (1 << 20) + 7}, DType::f32);
  tensors.fill(3);
  const std::vector<SafetensorsItem> items{{"large", large}};
  const auto summary = write_safetensors(folder / "x.safetensors", items);
  const SafetensorsReader reader(folder / "x.safetensors");
  EXPECT_THAT(summary.hashes[0], ElementsAre(hash(reader.read(reader.entries()[0]))));
  EXPECT_THAT(summary.hashes[0],
              ElementsAre(hash({large.raw(), static_cast<size_t>(large.bytes())})));
}

TEST(Safetensors, RefusesNamesThatAFileCannotHold) {
  const TemporaryFolder folder;
  float value = 0;
  const Tensor tensor = Tensor::wrap(&value, {1}, DType::f32);
  const auto write = [&](std::vector<SafetensorsItem> items) {
    return error_of([&] { write_safetensors(folder / "x.safetensors", items); });
  };
  EXPECT_THAT(write({{"a", tensor}, {"a", tensor}}), HasSubstr("two tensors are named 'a'"));
  EXPECT_THAT(write({{"__metadata__", tensor}}), HasSubstr("cannot be named __metadata__"));
  EXPECT_THAT(write({{"\xff\xfe", tensor}}), HasSubstr("not valid UTF-8"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Safetensors, ReadsWhatOtherProgramsWrite) {
  const TemporaryFolder folder;
  // A header that is not padded, tensors out of order, types that we do not compute with.
  const std::string header = R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},)"
                             R"( "a":{"shape":[],"data_offsets":[0,8],"dtype":"I64"},)"
                             R"( "c":{"dtype":"F4","shape":[4],"data_offsets":[12,14]}})";
  write_file(folder / "x.safetensors", little_endian(header.size()) + header + "01234567890123");
  const SafetensorsReader reader(folder / "x.safetensors");
  ASSERT_EQ(reader.entries().size(), 3);
  EXPECT_EQ(reader.entries()[0].name, "a");
  EXPECT_TRUE(reader.entries()[0].shape.empty());
  EXPECT_EQ(dtype_from_safetensors(reader.entries()[0].dtype), std::nullopt);
  EXPECT_EQ(reader.entries()[2].bytes(), 2);
}

// ---- hostile files

struct HostileCase {
  std::string header;
  size_t data_bytes;
  std::string message;
};

TEST(HostileSafetensors, EveryHeaderIsRefusedWithItsReason) {
  const std::string deep = std::string(100000, '[');
  const std::vector<HostileCase> cases{
      {"", 0, "does not start with '{'"},
      {"[]", 0, "does not start with '{'"},
      {" {}", 0, "does not start with '{'"},
      {"{", 0, "not valid JSON"},
      {"{}x", 0, "not valid JSON"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {std::string("{}\0\0", 4), 0, "not valid JSON"},
      {R"({"a":)" + deep, 0, "nested deeper"},
      {R"({"a":{"shape":[[1]]}})", 0, "nested deeper"},
      {R"({"a":1})", 0, "tensor 'a': found no JSON object"},
      {R"({"a":{}})", 0, "tensor 'a': its 'dtype' is missing"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'a': its 'shape' is missing"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "'data_offsets' is missing"},
      {R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", 4, "dtype that is not a text"},
      {R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "found the dtype 'F99'"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape that is not a list"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "in its shape"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "found 1.0 in its shape"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "found -1 in its shape"},
      {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", 4, "found true in its"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "found 18446744073709551615 in its shape"},
      {R"({"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}})", 4, "not valid JSON"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "size exceeds 2^63 bits"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "size exceeds 2^63 bits"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "expected whole bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":4}})", 4, "expected [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "expected [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2,4]}})", 4, "expected [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,"4"]}})", 4, "in its data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "in its data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "[4, 0], expected 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}})", 5, "[0, 5], expected 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "found keys beside"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "tensor 'a': its bytes end"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "found 5 bytes after"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       7, "tensor 'b': its bytes start at 3, within those of tensor 'a'"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4, "tensor 'b': its bytes start at 0, within"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "tensor 'b': its bytes start at 2, and those from 1 on belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "found the key 'a' twice"},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
       "found the key 'dtype' twice"},
      {R"({"__metadata__":5})", 0, "not a JSON object"},
      {R"({"__metadata__":{"a":5}})", 0, "'a' of its __metadata__ is not a text"},
      {R"({"\u001b[31m)" + std::string(5000, 'n') + R"(":1})", 0, "tensor '?[31mnnn"},
  };
  const TemporaryFolder folder;
  const fs::path path = folder / "hostile.safetensors";
  for (const HostileCase& hostile : cases) {
    put(path, little_endian(hostile.header.size()) + hostile.header +
                  std::string(hostile.data_bytes, 'x'));
    const std::string message = error_of([&] { SafetensorsReader reader(path); });
    EXPECT_THAT(message, HasSubstr(hostile.message)) << hostile.header.substr(0, 200);
    EXPECT_THAT(message, HasSubstr("hostile.safetensors"));
    EXPECT_LT(message.size(), 1000);
  }
}

TEST(HostileSafetensors, HeaderSizesOutOfBounds) {
  const TemporaryFolder folder;
  const fs::path path = folder / "hostile.safetensors";
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100'000'000}, uint64_t{100'000'001}, uint64_t{1} << 62,
        std::numeric_limits<uint64_t>::max() - 7, std::numeric_limits<uint64_t>::max()}) {
    put(path, little_endian(length) + "{}");
    EXPECT_THAT(error_of([&] { SafetensorsReader reader(path); }),
                HasSubstr(fmt::format("found a header size of {} bytes", length)));
  }
}

TEST(HostileSafetensors, TruncationAtEveryLength) {
  const TemporaryFolder folder;
  const SampleTensors tensors = sample_tensors();
  std::vector<SafetensorsItem> items;
  for (const NamedTensor& item : tensors.items()) items.push_back({item.label(), item.tensor});
  write_safetensors(folder / "whole.safetensors", items);
  const std::string whole = read_file(folder / "whole.safetensors");
  const fs::path path = folder / "cut.safetensors";
  for (size_t length = 0; length < whole.size(); ++length) {
    put(path, std::string_view(whole).substr(0, length));
    EXPECT_THAT(error_of([&] { SafetensorsReader reader(path); }), HasSubstr("cut.safetensors"));
  }
  EXPECT_THAT(error_of([&] { SafetensorsReader reader(folder / "absent"); }), HasSubstr("absent"));
  EXPECT_THAT(error_of([&] { SafetensorsReader reader(folder.path()); }), HasSubstr("folder"));
}

TEST(HostileSafetensors, RandomDamageNeverReachesOutsideTheFile) {
  const TemporaryFolder folder;
  const SampleTensors tensors = sample_tensors();
  std::vector<SafetensorsItem> items;
  for (const NamedTensor& item : tensors.items()) items.push_back({item.label(), item.tensor});
  write_safetensors(folder / "whole.safetensors", items);
  const std::string whole = read_file(folder / "whole.safetensors");
  const CounterRandom random(5, "damage");
  const fs::path path = folder / "damaged.safetensors";
  uint64_t draw = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    const uint64_t changes = 1 + random.bits(draw++) % 4;
    for (uint64_t i = 0; i < changes; ++i) {
      const size_t at = random.bits(draw++) % damaged.size();
      // Digits and punctuation are likelier than noise to pass the JSON parser.
      const std::string_view letters = "0123456789[]{},:\"\xff";
      damaged[at] = letters[random.bits(draw++) % letters.size()];
    }
    put(path, damaged);
    try {
      const SafetensorsReader reader(path);
      uint64_t sum = 0;
      for (const SafetensorsEntry& entry : reader.entries()) sum += hash(reader.read(entry));
      EXPECT_NE(sum, 1U);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged.safetensors"));
    }
  }
}

}  // namespace
}  // namespace tessera
