#include "checkpoint/hugging_face/weight_index.h"

#include <cmath>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/strict_json.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

constexpr int kIndexDepth = 4;  // levels of nesting: the index, its metadata and values of tools

/// Returns a number as the text of a whole number. Some tools write whole numbers with a fraction
/// of zero. Above 2^53 such a number would not be exact, and no model has that many bytes.
std::string whole_text(const Json& number) {
  constexpr double kExact = 0x1p53;
  if (!number.is_number_float()) return number.dump();
  const double value = number.get<double>();
  const bool is_whole = value >= 0 && value <= kExact && value == std::floor(value);
  return is_whole ? std::to_string(static_cast<int64_t>(value)) : number.dump();
}

}  // namespace

WeightIndex read_weight_index(std::string_view text, const std::string& origin) {
  const Json json = parse_strict_json(text, origin, kIndexDepth);
  const auto weights = json.is_object() ? json.find("weight_map") : json.end();
  if (weights == json.end() || !weights->is_object()) {
    throw Error("{}: found no object 'weight_map', which says the file of each tensor", origin);
  }
  WeightIndex index;
  for (const auto& [tensor, file] : weights->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!is_plain_name(name) || !name.ends_with(kWeightsExtension)) {
      throw Error("{}: the file of tensor {} is {}; expected the plain name of a {} file beside it",
                  origin, in_quotes(tensor), printable(file.dump()), kWeightsExtension);
    }
    index.file_of.emplace(tensor, name);
    index.files.insert(name);
  }
  if (index.files.empty()) throw Error("{}: its weight_map names no tensor", origin);
  const auto metadata = json.find("metadata");
  if (metadata != json.end() && metadata->is_object()) {
    const auto size = metadata->find("total_size");
    if (size != metadata->end() && size->is_number()) index.total_size = whole_text(*size);
  }
  return index;
}

}  // namespace tessera::hugging_face
