// The constructor parses the header, sorts the entries by their bytes, and checks that they cover
// the file without a gap or an overlap. The read functions can then rely on the entries.

#include "checkpoint/safetensors_reader.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "checkpoint/safetensors_types.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr int kHeaderDepth = 3;  // header, entry, shape
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kAdvice = "the file is damaged or incomplete: restore it from a copy";

std::string tensor_origin(const fs::path& path, std::string_view name) {
  return fmt::format("{}: tensor {}", path.string(), in_quotes(name));
}

/// Returns a JSON integer in [0, 2^63). Throws Error for any other value.
int64_t non_negative(const Json& json, const std::string& origin, std::string_view what) {
  if (!json.is_number_unsigned() ||
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw Error("{}: found {} in its {}, expected whole numbers from 0 to 2^63 - 1; {}", origin,
                printable(json.dump()), what, kAdvice);
  }
  return json.get<int64_t>();
}

/// Returns the number of bytes of a tensor whose elements have `bits` bits. Throws Error unless
/// they are whole bytes of fewer than 2^63 bits.
int64_t size_of(const SafetensorsEntry& entry, int bits, const std::string& origin) {
  int64_t total = bits;
  for (const int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(total, dim, &total)) {
      throw Error("{}: found a shape whose size exceeds 2^63 bits; {}", origin, kAdvice);
    }
  }
  if (total % 8 != 0) {
    throw Error("{}: found a size of {} bits, expected whole bytes; {}", origin, total, kAdvice);
  }
  return total / 8;
}

SafetensorsEntry parse_entry(const std::string& name, const Json& json, const fs::path& path) {
  const std::string origin = tensor_origin(path, name);
  if (!json.is_object()) throw Error("{}: found no JSON object; {}", origin, kAdvice);
  const auto field = [&](const char* key) -> const Json& {
    const auto found = json.find(key);
    if (found == json.end()) throw Error("{}: its '{}' is missing; {}", origin, key, kAdvice);
    return *found;
  };
  SafetensorsEntry entry;
  entry.name = name;
  const Json& dtype = field("dtype");
  if (!dtype.is_string()) throw Error("{}: found a dtype that is not a text; {}", origin, kAdvice);
  entry.dtype = dtype.get<std::string>();
  const auto bits = safetensors_bits(entry.dtype);
  if (!bits) {
    throw Error("{}: found the dtype {}, expected one of safetensors' (F32, BF16, I64, ...)",
                origin, in_quotes(entry.dtype));
  }
  const Json& shape = field("shape");
  if (!shape.is_array()) throw Error("{}: found a shape that is not a list; {}", origin, kAdvice);
  for (const Json& dim : shape) entry.shape.push_back(non_negative(dim, origin, "shape"));
  const Json& offsets = field("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    throw Error("{}: found data_offsets {}, expected [begin, end]; {}", origin,
                printable(offsets.dump()), kAdvice);
  }
  entry.begin = non_negative(offsets[0], origin, "data_offsets");
  entry.end = non_negative(offsets[1], origin, "data_offsets");
  if (json.size() != 3) {
    throw Error("{}: found keys beside dtype, shape and data_offsets; their meaning is not known",
                origin);
  }
  const int64_t expected = size_of(entry, *bits, origin);
  if (entry.begin > entry.end || entry.end - entry.begin != expected) {
    throw Error("{}: found data_offsets [{}, {}], expected {} bytes for its dtype and shape; {}",
                origin, entry.begin, entry.end, expected, kAdvice);
  }
  return entry;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const fs::path& path) : file_(path) {
  parse_header();
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_coverage();
  for (size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

std::string SafetensorsReader::read_header() {
  const std::string origin = path().string();
  const auto file_size = static_cast<uint64_t>(file_.size());
  if (file_size < kLengthBytes) {
    throw Error("{}: found {} bytes, expected a safetensors file, which has at least 8; {}", origin,
                file_size, kAdvice);
  }
  uint64_t length = 0;
  const auto length_bytes = std::as_writable_bytes(std::span<uint64_t>(&length, 1));
  file_.read_at(0, length_bytes);
  if (length > kLargestSafetensorsHeader) {
    throw Error("{}: found a header size of {} bytes, expected at most {}: {}", origin, length,
                kLargestSafetensorsHeader, "this is not a safetensors file, or a damaged one");
  }
  if (length > file_size - kLengthBytes) {
    throw Error("{}: found a header size of {} bytes in a file of {} bytes; {}", origin, length,
                file_size, kAdvice);
  }
  std::string text(length, '\0');
  file_.read_at(kLengthBytes, std::as_writable_bytes(std::span<char>(text)));
  StreamHash hash;
  hash.update(length_bytes);
  hash.update(std::as_bytes(std::span<const char>(text)));
  header_hash_ = hash.value();
  data_offset_ = static_cast<int64_t>(kLengthBytes + length);
  return text;
}

void SafetensorsReader::parse_header() {
  const std::string origin = path().string();
  const std::string text = read_header();
  if (!text.starts_with('{')) {
    throw Error("{}: found a header that does not start with '{{'; {}", origin, kAdvice);
  }
  const Json header = parse_strict_json(text, origin + ": header", kHeaderDepth);
  for (const auto& [name, json] : header.items()) {
    if (name != kMetadata) {
      entries_.push_back(parse_entry(name, json, path()));
      continue;
    }
    if (!json.is_object()) throw Error("{}: its {} is not a JSON object", origin, kMetadata);
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) {
        throw Error("{}: {} of its {} is not a text", origin, in_quotes(key), kMetadata);
      }
      metadata_.emplace(key, value.get<std::string>());
    }
  }
}

void SafetensorsReader::check_coverage() const {
  const auto available = file_.size() - data_offset_;
  int64_t position = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const SafetensorsEntry& entry = entries_[i];
    const std::string origin = tensor_origin(path(), entry.name);
    if (entry.end > available) {
      throw Error("{}: its bytes end at {}, but the file has only {} after its header; {}", origin,
                  entry.end, available, kAdvice);
    }
    if (entry.begin < position) {
      throw Error("{}: its bytes start at {}, within those of tensor {}; {}", origin, entry.begin,
                  in_quotes(entries_[i - 1].name), kAdvice);
    }
    if (entry.begin > position) {
      throw Error("{}: its bytes start at {}, and those from {} on belong to no tensor; {}", origin,
                  entry.begin, position, kAdvice);
    }
    position = entry.end;
  }
  if (position != available) {
    throw Error("{}: found {} bytes after its header, expected {}, the size of its tensors; {}",
                path().string(), available, position, kAdvice);
  }
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

void SafetensorsReader::read(const SafetensorsEntry& entry, int64_t begin,
                             std::span<std::byte> to) const {
  TESSERA_CHECK(begin >= 0 && begin + static_cast<int64_t>(to.size()) <= entry.bytes(),
                "{} bytes from {} on of a tensor of {}", to.size(), begin, entry.bytes());
  file_.read_at(data_offset_ + entry.begin + begin, to);
}

std::vector<std::byte> SafetensorsReader::read(const SafetensorsEntry& entry) const {
  std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes()));
  read(entry, 0, bytes);
  return bytes;
}

void SafetensorsReader::read_chunks(const SafetensorsEntry& entry, int64_t begin, int64_t count,
                                    const ChunkSink& sink) const {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kReadChunk, count)));
  for (int64_t read_bytes = 0; read_bytes < count;) {
    const int64_t size = std::min(kReadChunk, count - read_bytes);
    const std::span<std::byte> chunk = std::span(buffer).first(static_cast<size_t>(size));
    read(entry, begin + read_bytes, chunk);
    sink(chunk);
    read_bytes += size;
  }
}

void SafetensorsReader::will_need(const SafetensorsEntry& entry) const {
  file_.will_need(data_offset_ + entry.begin, entry.bytes());
}

}  // namespace tessera
