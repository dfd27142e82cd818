#include "data/npy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/prepared_rows.h"
#include "data/support.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

/// A version 1.0 file with this dictionary, padded as NumPy pads, and `data_bytes` zeros.
std::string file_with(const std::string& dictionary, size_t data_bytes) {
  std::string header = dictionary;
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return file + header + std::string(data_bytes, '\0');
}

NpyHeader parsed(const std::string& file, const std::string& name = "x") {
  const std::string head = file.substr(0, static_cast<size_t>(kMaxNpyHeaderBytes));
  return parse_npy_header(bytes_of(head), static_cast<int64_t>(file.size()), name);
}

TEST(Npy, WritesTheHeaderThatNumpyReads) {
  // By the letter of NumPy's format: magic, version 1.0, a 16-bit length that makes the data start
  // at a multiple of 64, a dictionary that ends in a newline.
  const std::string header = npy_header(DType::u16, 3, 5);
  EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t length =
      static_cast<unsigned char>(header[8]) + 256 * static_cast<size_t>(header[9]);
  EXPECT_EQ((10 + length) % 64, 0U);
  EXPECT_EQ(header.size(), 10 + length);
  EXPECT_TRUE(header.substr(10).starts_with(
      "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 5), } "));
  EXPECT_EQ(header.back(), '\n');
}

RC_GTEST_PROP(Npy, ReadsBackTheHeaderItWrote, ()) {
  const auto columns = *rc::gen::inRange<int64_t>(1, 5000);
  const auto rows = *rc::gen::inRange<int64_t>(0, 2000);
  const DType dtype = *rc::gen::element(DType::u16, DType::i32);
  const std::string head = npy_header(dtype, rows, columns);
  const int64_t bytes = static_cast<int64_t>(head.size()) + rows * columns * dtype_size(dtype);
  const NpyHeader header = parse_npy_header(bytes_of(head), bytes, "a.npy");
  RC_ASSERT(header.dtype == dtype);
  RC_ASSERT((header.shape == std::vector<int64_t>{rows, columns}));
  RC_ASSERT(header.data_offset == static_cast<int64_t>(head.size()));
  RC_ASSERT(testing::elements_of(header) == rows * columns);
}

TEST(Npy, ReadsOtherSpellingsOfTheHeader) {
  const std::string one =
      file_with("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<i4\"}", 24);
  EXPECT_EQ(parsed(one).shape, (std::vector<int64_t>{2, 3}));
  const std::string vector =
      file_with("{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }", 10);
  EXPECT_EQ(parsed(vector).shape, (std::vector<int64_t>{5}));
  std::string second = file_with("{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }", 10);
  second[6] = '\2';
  second.insert(10, 2, '\0');
  EXPECT_EQ(parsed(second).data_offset, parsed(vector).data_offset + 2);
}

TEST(Npy, RefusesMalformedHeaders) {
  const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }";
  const auto replace = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    return file_with(text.replace(text.find(what), what.size(), by), 12);
  };
  std::string version = file_with(good, 12);
  version[6] = '\4';
  std::string length = file_with(good, 12);
  length[9] = '\x7f';
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "does not start with"},
      {"PK\3\4 and more bytes", "does not start with"},
      {"\x93NUMPY", "does not start with"},
      {version, ".npy version 4.0"},
      {length, "ends inside its header"},
      {length + std::string(40'000, ' '), "its header exceeds 4096 bytes"},
      {file_with(good, 11), "holds 11 bytes of data, but its header's shape needs 12"},
      {file_with(good, 13), "holds 13 bytes"},
      {replace("False", "True"), "Fortran order"},
      {replace("False", "Maybe"), "True or False"},
      {replace("<u2", ">u2"), "type '>u2'"},
      {replace("<u2", "|O"), "type '|O'"},
      {replace("(2, 3)", "(2, -3)"), "expected a size"},
      {replace("(2, 3)", "(2 3)"), "expected ')'"},
      {replace("(2, 3)", "(99999999999999999999,)"), "a size too large"},
      {replace("(2, 3)", "(4611686018427387904, 4)"), "more than any file"},
      {replace("'shape'", "'form'"), "unknown key 'form'"},
      {replace("'shape'", "'descr'"), "expected a string"},
      {replace("'shape': (2, 3), ", ""), "expected the keys"},
      {replace("'descr': '<u2'", "'descr': '<u2', 'descr': '<u2'"), "twice"},
      {replace("}", "} x"), "text after the dictionary"},
      {replace("'<u2'", "'<u2"), "type '<u2, '"},
      {file_with("", 0), "expected '{'"},
      {file_with("{", 0), "expected a string"},
      {file_with("{'descr", 0), "a string without its end"},
  };
  for (const auto& [file, message] : cases) {
    const std::string found = error_of([&] { parsed(file, "bad.npy"); });
    EXPECT_THAT(found, HasSubstr(message)) << file;
    EXPECT_THAT(found, HasSubstr("bad.npy"));
  }
}

RC_GTEST_PROP(Npy, NeverReadsOutsideADamagedFile,
              (const std::vector<std::pair<uint16_t, char>>& flips, uint16_t keep)) {
  std::string file = file_with("{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }", 12);
  for (const auto& [at, value] : flips) file[at % file.size()] = value;
  file.resize(keep % (file.size() + 1));
  const std::vector<char> exact(file.begin(), file.end());  // so that sanitizers see each overrun
  try {
    const NpyHeader header =
        parse_npy_header(std::as_bytes(std::span(exact)), static_cast<int64_t>(exact.size()), "x");
    RC_ASSERT(header.data_offset + testing::elements_of(header) * dtype_size(header.dtype) ==
              static_cast<int64_t>(exact.size()));
  } catch (const Error&) {
    RC_SUCCEED("refused");
  }
}

}  // namespace
}  // namespace tessera
