#include "checkpoint/checkpoint_manifest.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash_line.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera-checkpoint";
constexpr int64_t kVersion = 1;
constexpr int kManifestDepth = 4;  // manifest, tensors, tensor, shape
constexpr size_t kHashDigits = 16;

OrderedJson to_json(const StateValue& value) {
  if (const auto* real = std::get_if<double>(&value)) {
    if (std::isfinite(*real)) return *real;
    return {{"real", std::isnan(*real) ? "nan" : *real > 0 ? "inf" : "-inf"}};
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  return std::get<std::string>(value);
}

OrderedJson to_json(const CheckpointManifest& manifest) {
  OrderedJson state = OrderedJson::object();
  for (const auto& [name, value] : manifest.state.values) state[name] = to_json(value);
  const auto files = [](const std::vector<CheckpointFile>& list, const char* hash_key) {
    OrderedJson json = OrderedJson::array();
    for (const CheckpointFile& file : list) {
      json.push_back({{"name", file.name}, {"bytes", file.bytes}, {hash_key, file.hash}});
    }
    return json;
  };
  OrderedJson tensors = OrderedJson::array();
  for (const CheckpointTensor& tensor : manifest.tensors) {
    const auto dims = tensor.shape.dims();
    tensors.push_back({{"name", tensor.name},
                       {"group", tensor.group},
                       {"file", tensor.file},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                       {"xxh3", tensor.hash}});
  }
  return {{"format", kFormat},
          {"version", kVersion},
          {"created_by", manifest.state.created_by},
          {"step", manifest.state.step},
          {"state", std::move(state)},
          {"tensor_files", files(manifest.tensor_files, "header_xxh3")},
          {"extra_files", files(manifest.extra_files, "xxh3")},
          {"tensors", std::move(tensors)}};
}

/// Reads the fields of one manifest. Every error names the file and the field.
class ManifestParser {
 public:
  explicit ManifestParser(std::string origin) : origin_(std::move(origin)) {}

  CheckpointManifest parse(const Json& json) const {
    if (text(json, "format") != kFormat) fail("its format is not 'tessera-checkpoint'");
    const int64_t version = size(json, "version");
    if (version != kVersion) {
      throw Error("{} has format version {}, expected {}; use the tessera that wrote it ({})",
                  origin_, version, kVersion, in_quotes(text(json, "created_by")));
    }
    CheckpointManifest manifest;
    manifest.state.created_by = text(json, "created_by");
    manifest.state.step = size(json, "step");
    const Json& state = field(json, "state", Json::value_t::object, "an object");
    for (const auto& [name, value] : state.items()) {
      manifest.state.values.emplace(name, state_value(name, value));
    }
    std::set<std::string> names{std::string(kCheckpointManifestName)};
    manifest.tensor_files = files(json, "tensor_files", "header_xxh3", names);
    manifest.extra_files = files(json, "extra_files", "xxh3", names);
    parse_tensors(json, manifest);
    return manifest;
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    throw Error("{} is damaged: {}; use another checkpoint", origin_,
                fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  const Json& field(const Json& json, const char* key, Json::value_t type,
                    const char* type_name) const {
    if (!json.is_object()) fail("found a list entry that is not an object");
    const auto found = json.find(key);
    if (found == json.end()) fail("its '{}' is missing", key);
    if (found->type() != type) fail("its '{}' is not {}", key, type_name);
    return *found;
  }

  std::string text(const Json& json, const char* key) const {
    return field(json, key, Json::value_t::string, "a text").get<std::string>();
  }

  const Json& list(const Json& json, const char* key) const {
    return field(json, key, Json::value_t::array, "a list");
  }

  int64_t size_value(const Json& json, const char* key) const {
    constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
    if (!json.is_number_unsigned() || json.get<uint64_t>() > kLargest) {
      fail("its '{}' is {}, expected whole numbers from 0 to 2^63 - 1", key,
           printable(json.dump()));
    }
    return json.get<int64_t>();
  }

  int64_t size(const Json& json, const char* key) const {
    return size_value(field(json, key, Json::value_t::number_unsigned, "a count"), key);
  }

  std::string hash_field(const Json& json, const char* key) const {
    std::string value = text(json, key);
    if (value.size() != kHashDigits ||
        value.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail("its '{}' is {}, expected 16 hexadecimal digits", key, in_quotes(value));
    }
    return value;
  }

  StateValue state_value(const std::string& name, const Json& json) const {
    if (json.is_string()) return json.get<std::string>();
    if (json.is_number_float()) return json.get<double>();
    if (json.is_number_integer()) {
      if (!json.is_number_unsigned()) return json.get<int64_t>();
      return size_value(json, "state");
    }
    const std::string real = json.is_object() ? text(json, "real") : "";
    if (real == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (real == "inf") return std::numeric_limits<double>::infinity();
    if (real == "-inf") return -std::numeric_limits<double>::infinity();
    fail("its state {} is neither a number nor a text", in_quotes(name));
  }

  std::vector<CheckpointFile> files(const Json& json, const char* key, const char* hash_key,
                                    std::set<std::string>& names) const {
    std::vector<CheckpointFile> result;
    for (const Json& entry : list(json, key)) {
      CheckpointFile file{text(entry, "name"), size(entry, "bytes"), hash_field(entry, hash_key)};
      // The name is joined to the folder's path, so it must not lead out of the folder.
      if (!is_plain_name(file.name)) fail("the file {} is not a plain name", in_quotes(file.name));
      if (!names.insert(file.name).second) fail("it lists the file {} twice", in_quotes(file.name));
      result.push_back(std::move(file));
    }
    return result;
  }

  void parse_tensors(const Json& json, CheckpointManifest& manifest) const {
    std::set<std::string_view> known_files;
    for (const CheckpointFile& file : manifest.tensor_files) known_files.insert(file.name);
    std::set<std::pair<std::string, std::string>> identities;
    int64_t total = 0;
    for (const Json& entry : list(json, "tensors")) {
      CheckpointTensor tensor;
      tensor.group = text(entry, "group");
      tensor.name = text(entry, "name");
      tensor.file = text(entry, "file");
      tensor.hash = hash_field(entry, "xxh3");
      const std::string label = in_quotes(tensor.label());
      try {
        tensor.dtype = dtype_from_name(text(entry, "dtype"));
      } catch (const Error& error) {
        fail("tensor {}: {}", label, printable(error.what()));
      }
      tensor.shape = shape(entry, label, dtype_size(tensor.dtype), total);
      if (!known_files.contains(tensor.file)) {
        fail("tensor {} stands in {}, which is none of its files", label, in_quotes(tensor.file));
      }
      if (!identities.emplace(tensor.group, tensor.name).second) {
        fail("it lists the tensor {} twice", label);
      }
      manifest.tensors.push_back(std::move(tensor));
    }
  }

  /// Reads the shape and adds the tensor's bytes to `total`. Throws Error when `total` would
  /// overflow.
  Shape shape(const Json& entry, const std::string& label, int64_t bytes, int64_t& total) const {
    std::vector<int64_t> dims;
    for (const Json& dim : list(entry, "shape")) {
      dims.push_back(size_value(dim, "shape"));
      if (__builtin_mul_overflow(bytes, dims.back(), &bytes)) {
        fail("the size of tensor {} exceeds 2^63 bytes", label);
      }
    }
    if (dims.size() > static_cast<size_t>(Shape::kMaximumRank)) {
      fail("tensor {} has {} dims, expected at most {}", label, dims.size(), Shape::kMaximumRank);
    }
    if (__builtin_add_overflow(total, bytes, &total)) {
      fail("the size of its tensors exceeds 2^63 bytes");
    }
    return Shape(dims);
  }

  std::string origin_;
};

}  // namespace

int64_t CheckpointManifest::tensor_bytes() const {
  int64_t total = 0;
  for (const CheckpointTensor& tensor : tensors) total += tensor.bytes();
  return total;
}

void write_checkpoint_manifest(const fs::path& folder, const CheckpointManifest& manifest) {
  const fs::path path = folder / kCheckpointManifestName;
  std::string text;
  try {
    text = with_hash_line(to_json(manifest).dump(1) + "\n");
  } catch (const OrderedJson::exception& error) {
    throw Error("{}: a name or a state value is not valid UTF-8 ({})", path.string(),
                printable(error.what()));
  }
  write_file(path, text);
}

CheckpointManifest read_checkpoint_manifest(const fs::path& folder) {
  const fs::path path = folder / kCheckpointManifestName;
  std::error_code code;
  if (!fs::is_regular_file(path, code)) {
    throw Error(
        "{} is not a complete checkpoint: it has no {}; give the folder of a checkpoint, "
        "such as step-00000100",
        folder.string(), kCheckpointManifestName);
  }
  const std::string text = read_file(path);
  if (!has_hash_line(text)) {
    throw Error(
        "{} is damaged or not of a tessera checkpoint: it does not start with its hash; "
        "use another checkpoint",
        path.string());
  }
  check_hash_line(text, path.string(), "use another checkpoint");
  return ManifestParser(path.string())
      .parse(parse_strict_json(text, path.string(), kManifestDepth));
}

void check_checkpoint_files(const fs::path& folder, const CheckpointManifest& manifest) {
  for (const auto* list : {&manifest.tensor_files, &manifest.extra_files}) {
    for (const CheckpointFile& file : *list) {
      const fs::path path = folder / file.name;
      std::error_code code;
      if (!fs::is_regular_file(path, code)) {
        throw Error("{} is missing or not a file; use another checkpoint", path.string());
      }
      const auto size = fs::file_size(path, code);
      if (code) throw Error("cannot read {}: {}", path.string(), code.message());
      if (size != static_cast<uintmax_t>(file.bytes)) {
        throw Error("{} has {} bytes, expected {}; use another checkpoint", path.string(), size,
                    file.bytes);
      }
    }
  }
}

}  // namespace tessera
