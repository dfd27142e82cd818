#include "data/npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"

// parse_npy_array() checks the magic, the version and the lengths of a header. DictionaryReader
// parses the dictionary between them.

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kNpyHeaderBytes = 128;  // in files that we write; enough for any two 64-bit sizes

constexpr std::pair<DType, std::string_view> kTypeNames[] = {
    {DType::u16, "<u2"}, {DType::i32, "<i4"}, {DType::u8, "|u1"},
    {DType::f32, "<f4"}, {DType::f64, "<f8"},
};

/// A parser of the header's dictionary, in the subset of Python that NumPy writes.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& name, std::span<const NpyType> types)
      : text_(text), name_(name), types_(types) {}

  NpyArray read() {
    expect('{');
    while (!accept('}')) {
      read_entry();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!text_.empty()) fail("text after the dictionary");
    if (!type_ || !fortran_order_ || !shape_) {
      fail("expected the keys 'descr', 'fortran_order' and 'shape'");
    }
    if (*fortran_order_) {
      throw Error("{} is in Fortran order; expected C order: save it with order='C'", name_);
    }
    return {*type_, *shape_, 0};
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error("{} is not a valid .npy file: {} in its header", name_, what);
  }

  void skip_spaces() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front()))) {
      text_.remove_prefix(1);
    }
  }

  /// Skips spaces and `character`. Returns false if another character comes next.
  bool accept(char character) {
    skip_spaces();
    if (text_.empty() || text_.front() != character) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char character) {
    if (!accept(character)) fail(fmt::format("expected '{}'", character));
  }

  std::string_view read_string() {
    skip_spaces();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') fail("expected a string");
    const size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) fail("a string without its end");
    const std::string_view value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return value;
  }

  bool read_bool() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (text_.starts_with(word)) {
        text_.remove_prefix(std::string_view(word).size());
        return value;
      }
    }
    fail("expected True or False");
  }

  int64_t read_integer() {
    skip_spaces();
    if (text_.empty() || !std::isdigit(static_cast<unsigned char>(text_.front()))) {
      fail("expected a size");
    }
    int64_t value = 0;
    while (!text_.empty() && std::isdigit(static_cast<unsigned char>(text_.front()))) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_.front() - '0', &value)) {
        fail("a size too large");
      }
      text_.remove_prefix(1);
    }
    return value;
  }

  std::vector<int64_t> read_shape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(read_integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  NpyType read_type() {
    const std::string_view found = read_string();
    std::vector<std::string> known;
    for (const NpyType& type : types_) {
      if (type.name == found) return type;
      known.push_back(fmt::format("'{}'", type.name));
    }
    throw Error("{} has elements of type '{}'; expected {}", name_, found, join(known, " or "));
  }

  template <typename T>
  void set_once(std::optional<T>& field, T value, std::string_view key) {
    if (field) fail(fmt::format("'{}' twice", key));
    field = std::move(value);
  }

  void read_entry() {
    const std::string_view key = read_string();
    expect(':');
    if (key == "descr") {
      set_once(type_, read_type(), key);
    } else if (key == "fortran_order") {
      set_once(fortran_order_, read_bool(), key);
    } else if (key == "shape") {
      set_once(shape_, read_shape(), key);
    } else {
      fail(fmt::format("the unknown key '{}'", key));
    }
  }

  std::string_view text_;
  const std::string& name_;
  std::span<const NpyType> types_;
  std::optional<NpyType> type_;
  std::optional<bool> fortran_order_;
  std::optional<std::vector<int64_t>> shape_;
};

/// Returns the number of bytes of an array, or nothing if it does not fit in 63 bits.
std::optional<int64_t> array_bytes(const NpyArray& array) {
  int64_t bytes = array.type.bytes;
  for (const int64_t size : array.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

std::string npy_type_name(DType dtype) {
  for (const auto& [known, name] : kTypeNames) {
    if (known == dtype) return std::string(name);
  }
  throw Error("NumPy has no element type for {}", dtype_name(dtype));
}

bool has_npy_magic(std::span<const std::byte> head) {
  return std::string_view(reinterpret_cast<const char*>(head.data()), head.size())
      .starts_with(kNpyMagic);
}

NpyArray parse_npy_array(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& name, std::span<const NpyType> types) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.size() < kNpyMagic.size() + 4 || !has_npy_magic(head)) {
    throw Error("{} is not a .npy file: it does not start with \\x93NUMPY", name);
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(head[i]); };
  const size_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0) {
    throw Error("{} has .npy version {}.{}; expected 1.0, 2.0 or 3.0", name, version, byte(7));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t dictionary_offset = 8 + length_bytes;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes && 8 + i < text.size(); ++i) length |= byte(8 + i) << (8 * i);
  if (text.size() < dictionary_offset || text.size() - dictionary_offset < length) {
    throw Error("{} is not a valid .npy file: {}", name,
                static_cast<int64_t>(text.size()) == file_bytes
                    ? std::string("it ends inside its header")
                    : fmt::format("its header exceeds {} bytes", text.size()));
  }
  NpyArray array = DictionaryReader(text.substr(dictionary_offset, length), name, types).read();
  array.data_offset = static_cast<int64_t>(dictionary_offset + length);
  const int64_t found = file_bytes - array.data_offset;
  const std::optional<int64_t> expected = array_bytes(array);
  if (!expected || *expected != found) {
    throw Error("{} holds {} bytes of data, but its header's shape needs {}; it is damaged", name,
                found, expected ? std::to_string(*expected) : "more than any file");
  }
  return array;
}

NpyHeader parse_npy_header(std::span<const std::byte> head, int64_t file_bytes,
                           const std::string& name) {
  std::vector<NpyType> types;
  for (const auto& [dtype, type_name] : kTypeNames) types.push_back({type_name, dtype_size(dtype)});
  const NpyArray array = parse_npy_array(head, file_bytes, name, types);
  const auto* type =
      std::ranges::find(kTypeNames, array.type.name, &std::pair<DType, std::string_view>::second);
  return {type->first, array.shape, array.data_offset};
}

std::string npy_header(DType dtype, int64_t rows, int64_t columns) {
  std::string text(kNpyMagic);
  const size_t dictionary_bytes = kNpyHeaderBytes - kNpyMagic.size() - 4;
  text += {'\x01', '\x00', static_cast<char>(dictionary_bytes), '\x00'};
  text += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                      npy_type_name(dtype), rows, columns);
  TESSERA_CHECK(text.size() < kNpyHeaderBytes, "a header of {} bytes", text.size());
  text.resize(kNpyHeaderBytes - 1, ' ');
  text.push_back('\n');
  return text;
}

}  // namespace tessera
