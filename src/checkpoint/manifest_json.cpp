#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/checkpoint_manifest.h"

// The JSON of a manifest: to_json() makes it, and ManifestParser reads it. The parser trusts
// nothing. It checks the type and range of each field, that no file name leads out of the folder,
// and that the pieces of each tensor cover it and have a hash for every block.

namespace tessera {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera-checkpoint";
constexpr int64_t kVersion = 2;
constexpr int kManifestDepth = 7;  // manifest, tensors, tensor, pieces, piece, region, dim
constexpr size_t kHashDigits = 16;
constexpr int64_t kWidestElement = 8;  // bytes; a block holds whole elements of any type

OrderedJson to_json(const StateValue& value) {
  if (const auto* real = std::get_if<double>(&value)) {
    if (std::isfinite(*real)) return *real;
    return {{"real", std::isnan(*real) ? "nan" : *real > 0 ? "inf" : "-inf"}};
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  return std::get<std::string>(value);
}

/// Returns the hashes of a piece's blocks, separated by blanks.
std::string hashes_text(const SavedPiece& piece) {
  std::vector<std::string> words;
  for (const uint64_t hash : piece.hashes) words.push_back(hash_text(hash));
  return join(words, " ");
}

OrderedJson to_json(const SavedPiece& piece) {
  OrderedJson region = OrderedJson::array();
  for (const ElementRun& run : piece.region.dims) {
    region.push_back({run.begin, run.begin + run.length});
  }
  return {{"file", piece.file}, {"region", std::move(region)}, {"xxh3", hashes_text(piece)}};
}

OrderedJson to_json(const CheckpointManifest& manifest) {
  OrderedJson state = OrderedJson::object();
  for (const auto& [name, value] : manifest.state.values) state[name] = to_json(value);
  const auto files_json = [](const std::vector<CheckpointFile>& list, const char* hash_key) {
    OrderedJson json = OrderedJson::array();
    for (const CheckpointFile& file : list) {
      json.push_back({{"name", file.name}, {"bytes", file.bytes}, {hash_key, file.hash}});
    }
    return json;
  };
  OrderedJson tensors = OrderedJson::array();
  for (const CheckpointTensor& tensor : manifest.tensors) {
    const auto dims = tensor.shape.dims();
    OrderedJson pieces = OrderedJson::array();
    for (const SavedPiece& piece : tensor.pieces) pieces.push_back(to_json(piece));
    tensors.push_back({{"name", tensor.name},
                       {"group", tensor.group},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                       {"pieces", std::move(pieces)}});
  }
  return {{"format", kFormat},
          {"version", kVersion},
          {"created_by", manifest.state.created_by},
          {"step", manifest.state.step},
          {"state", std::move(state)},
          {"tensor_files", files_json(manifest.tensor_files, "header_xxh3")},
          {"extra_files", files_json(manifest.extra_files, "xxh3")},
          {"block_bytes", manifest.block_bytes},
          {"tensors", std::move(tensors)}};
}

/// Reads one manifest, field by field. Every error names the file and, if one is at fault, the
/// field or the tensor.
class ManifestParser {
 public:
  ManifestParser(std::string origin, ManifestPart part) : origin_(std::move(origin)), part_(part) {}

  CheckpointManifest parse(const Json& json) const {
    if (text_field(json, "format") != kFormat) fail("its format is not 'tessera-checkpoint'");
    const int64_t version = whole_field(json, "version");
    if (version < 1 || version > kVersion) {
      throw Error(
          "{} has format version {}, expected at most {}; use the tessera that wrote it ({})",
          origin_, version, kVersion, in_quotes(text_field(json, "created_by")));
    }
    CheckpointManifest manifest;
    manifest.state.created_by = text_field(json, "created_by");
    manifest.state.step = whole_field(json, "step");
    const Json& state = field(json, "state", Json::value_t::object, "an object");
    for (const auto& [name, value] : state.items()) {
      manifest.state.values.emplace(name, state_value(name, value));
    }
    std::set<std::string> names{std::string(kCheckpointManifestName)};
    manifest.tensor_files = parse_files(json, "tensor_files", "header_xxh3", names);
    manifest.extra_files = parse_files(json, "extra_files", "xxh3", names);
    if (version > 1) {
      manifest.block_bytes = whole_field(json, "block_bytes");
      if (manifest.block_bytes == 0 || manifest.block_bytes % kWidestElement != 0) {
        fail("its 'block_bytes' is {}, expected a multiple of {}", manifest.block_bytes,
             kWidestElement);
      }
    }
    parse_tensors(json, version, manifest);
    return manifest;
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    throw Error("{} is damaged: {}; use another checkpoint", origin_,
                fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  /// Returns a field of this type. The functions named _field use it.
  const Json& field(const Json& json, const char* key, Json::value_t type,
                    const char* type_name) const {
    if (!json.is_object()) fail("found a list entry that is not an object");
    const auto found = json.find(key);
    if (found == json.end()) fail("its '{}' is missing", key);
    if (found->type() != type) fail("its '{}' is not {}", key, type_name);
    return *found;
  }

  std::string text_field(const Json& json, const char* key) const {
    return field(json, key, Json::value_t::string, "a text").get<std::string>();
  }

  const Json& list_field(const Json& json, const char* key) const {
    return field(json, key, Json::value_t::array, "a list");
  }

  /// Returns a whole number in [0, 2^63); `key` names it in errors.
  int64_t parse_whole(const Json& json, const char* key) const {
    constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
    if (!json.is_number_unsigned() || json.get<uint64_t>() > kLargest) {
      fail("its '{}' is {}, expected whole numbers from 0 to 2^63 - 1", key,
           printable(json.dump()));
    }
    return json.get<int64_t>();
  }

  int64_t whole_field(const Json& json, const char* key) const {
    return parse_whole(field(json, key, Json::value_t::number_unsigned, "a count"), key);
  }

  std::string hash_field(const Json& json, const char* key) const {
    std::string value = text_field(json, key);
    parse_hash(value, key);
    return value;
  }

  uint64_t parse_hash(std::string_view value, const char* key) const {
    uint64_t hash = 0;
    const char* end = value.data() + value.size();
    const bool digits = value.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (value.size() != kHashDigits || !digits ||
        std::from_chars(value.data(), end, hash, 16).ptr != end) {
      fail("its '{}' is {}, expected 16 hexadecimal digits", key, in_quotes(std::string(value)));
    }
    return hash;
  }

  /// Returns a value of the state. JSON has no NaN or infinity: {"real": "nan"} stands for one.
  StateValue state_value(const std::string& name, const Json& json) const {
    if (json.is_string()) return json.get<std::string>();
    if (json.is_number_float()) return json.get<double>();
    if (json.is_number_integer()) {
      if (!json.is_number_unsigned()) return json.get<int64_t>();
      return parse_whole(json, "state");
    }
    const std::string real = json.is_object() ? text_field(json, "real") : "";
    if (real == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (real == "inf") return std::numeric_limits<double>::infinity();
    if (real == "-inf") return -std::numeric_limits<double>::infinity();
    fail("its state {} is neither a number nor a text", in_quotes(name));
  }

  /// Returns a list of files, and adds their names to `names`, in which none may occur twice.
  std::vector<CheckpointFile> parse_files(const Json& json, const char* key, const char* hash_key,
                                          std::set<std::string>& names) const {
    std::vector<CheckpointFile> result;
    for (const Json& entry : list_field(json, key)) {
      CheckpointFile file{text_field(entry, "name"), whole_field(entry, "bytes"),
                          hash_field(entry, hash_key)};
      // The name is joined to the folder's path, so it must not lead out of the folder.
      if (!is_plain_name(file.name)) fail("the file {} is not a plain name", in_quotes(file.name));
      if (!names.insert(file.name).second) fail("it lists the file {} twice", in_quotes(file.name));
      result.push_back(std::move(file));
    }
    return result;
  }

  void parse_tensors(const Json& json, int64_t version, CheckpointManifest& manifest) const {
    std::set<std::string_view> known_files;
    for (const CheckpointFile& file : manifest.tensor_files) known_files.insert(file.name);
    std::set<std::pair<std::string, std::string>> identities;
    int64_t total_bytes = 0;
    for (const Json& entry : list_field(json, "tensors")) {
      CheckpointTensor tensor;
      tensor.group = text_field(entry, "group");
      tensor.name = text_field(entry, "name");
      const std::string label = in_quotes(tensor.label());
      try {
        tensor.dtype = dtype_from_name(text_field(entry, "dtype"));
      } catch (const Error& error) {
        fail("tensor {}: {}", label, printable(error.what()));
      }
      tensor.shape = parse_shape(entry, label, dtype_size(tensor.dtype), total_bytes);
      if (version == 1) {
        // Version 1 had each tensor in one piece, with one hash.
        tensor.pieces.push_back({text_field(entry, "file"), Region::whole_of(tensor.shape),
                                 parse_hashes(entry, tensor.bytes(), manifest.block_bytes, label)});
      } else {
        parse_pieces(entry, manifest.block_bytes, tensor);
      }
      for (const SavedPiece& piece : tensor.pieces) {
        if (known_files.contains(piece.file)) continue;
        fail("tensor {} stands in {}, which is none of its files", label, in_quotes(piece.file));
      }
      if (!identities.emplace(tensor.group, tensor.name).second) {
        fail("it lists the tensor {} twice", label);
      }
      manifest.tensors.push_back(std::move(tensor));
    }
  }

  void parse_pieces(const Json& json, int64_t block_bytes, CheckpointTensor& tensor) const {
    const std::string label = in_quotes(tensor.label());
    std::vector<Region> regions;
    for (const Json& entry : list_field(json, "pieces")) {
      SavedPiece piece{text_field(entry, "file"), parse_region(entry, tensor), {}};
      const int64_t bytes = piece.region.elements() * dtype_size(tensor.dtype);
      piece.hashes = parse_hashes(entry, bytes, block_bytes, label);
      regions.push_back(piece.region);
      tensor.pieces.push_back(std::move(piece));
    }
    if (part_ != ManifestPart::whole) return;
    if (const std::string problem = cover_problem(tensor.shape, regions); !problem.empty()) {
      fail("tensor {}: {}", label, problem);
    }
  }

  /// Returns the region of a piece, which must be within the tensor.
  Region parse_region(const Json& entry, const CheckpointTensor& tensor) const {
    Region region;
    for (const Json& dim : list_field(entry, "region")) {
      if (!dim.is_array() || dim.size() != 2) fail("its 'region' has no pairs of numbers");
      const int64_t begin = parse_whole(dim[0], "region");
      const int64_t end = parse_whole(dim[1], "region");
      const auto number = static_cast<int>(region.dims.size());
      if (number == tensor.shape.rank() || begin > end || end > tensor.shape[number]) {
        fail("a region of tensor {} has {}:{} of its dim {}, which is not within {}",
             in_quotes(tensor.label()), begin, end, number, tensor.shape.text());
      }
      region.dims.push_back({begin, end - begin});
    }
    if (std::ssize(region.dims) != tensor.shape.rank()) {
      fail("a region of tensor {} has {} dims of {}", in_quotes(tensor.label()), region.dims.size(),
           tensor.shape.text());
    }
    return region;
  }

  /// Returns the hashes of the blocks of a piece of that many bytes.
  std::vector<uint64_t> parse_hashes(const Json& entry, int64_t bytes, int64_t block_bytes,
                                     const std::string& label) const {
    const std::string text = text_field(entry, "xxh3");
    std::vector<uint64_t> result;
    for (size_t at = 0; at <= text.size(); at += kHashDigits + 1) {
      const size_t end = std::min(text.find(' ', at), text.size());
      result.push_back(parse_hash(std::string_view(text).substr(at, end - at), "xxh3"));
    }
    if (std::ssize(result) != block_count(bytes, block_bytes)) {
      fail("tensor {} has {} hashes for a piece of {} bytes, expected {}", label, result.size(),
           bytes, block_count(bytes, block_bytes));
    }
    return result;
  }

  /// Returns the shape of a tensor with elements of `element_bytes` bytes. Adds the size of the
  /// tensor to `total_bytes`, which must not overflow.
  Shape parse_shape(const Json& entry, const std::string& label, int64_t element_bytes,
                    int64_t& total_bytes) const {
    std::vector<int64_t> dims;
    int64_t bytes = element_bytes;
    for (const Json& dim : list_field(entry, "shape")) {
      dims.push_back(parse_whole(dim, "shape"));
      if (__builtin_mul_overflow(bytes, dims.back(), &bytes)) {
        fail("the size of tensor {} exceeds 2^63 bytes", label);
      }
    }
    if (dims.size() > static_cast<size_t>(Shape::kMaximumRank)) {
      fail("tensor {} has {} dims, expected at most {}", label, dims.size(), Shape::kMaximumRank);
    }
    if (__builtin_add_overflow(total_bytes, bytes, &total_bytes)) {
      fail("the size of its tensors exceeds 2^63 bytes");
    }
    return Shape(dims);
  }

  std::string origin_;
  ManifestPart part_;
};

}  // namespace

std::string manifest_text(const CheckpointManifest& manifest, const std::string& origin) {
  try {
    return to_json(manifest).dump(1) + "\n";
  } catch (const OrderedJson::exception& error) {
    throw Error("{}: a name or a state value is not valid UTF-8 ({})", origin,
                printable(error.what()));
  }
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& origin,
                                  ManifestPart part) {
  return ManifestParser(origin, part).parse(parse_strict_json(text, origin, kManifestDepth));
}

}  // namespace tessera
