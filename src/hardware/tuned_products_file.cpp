#include "hardware/tuned_products_file.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash_line.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "base/words.h"
#include "engine/gemm_json.h"
#include "hardware/json_members.h"

namespace tessera {
namespace {

// EntryReader reads the members of an entry. Then come the two kinds of entries (products and
// products of groups), the whole file, and the tables for people.

constexpr const char* kTableFormat = "tessera tuned products";
constexpr int64_t kTableVersion = 2;
constexpr const char* kTuneAgain = "tune again with `tessera bench products`";

std::string hexadecimal(const ProductAlgorithm& algorithm) {
  std::string text;
  for (const std::byte byte : algorithm) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

/// The members of an entry of a file. Errors name the file and the entry's number.
class EntryReader : public JsonMembers {
 public:
  using JsonMembers::JsonMembers;

  int64_t whole(const char* name, int64_t least) const {
    const nlohmann::json& value = member(name);
    constexpr int64_t kMost = int64_t{1} << 40;
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{kMost};
    if (!fits || value.get<int64_t>() < least) {
      refuse(name, fmt::format("a whole number from {} to {}", least, kMost));
    }
    return value.get<int64_t>();
  }
  bool flag(const char* name) const {
    if (!member(name).is_boolean()) refuse(name, "true or false");
    return member(name).get<bool>();
  }
  double seconds(const char* name) const {
    const double value = seconds_or_none(name);
    if (value == 0) refuse(name, "a number above 0");
    return value;
  }
  /// Returns the seconds of a member. 0 stands for a product that was not measured.
  double seconds_or_none(const char* name) const {
    const nlohmann::json& value = member(name);
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>())) {
      refuse(name, "a number of seconds");
    }
    return value.get<double>();
  }
  template <typename Enum>
  Enum word_of(const char* name) const {
    const nlohmann::json& value = member(name);
    const auto found =
        value.is_string() ? value_of_word<Enum>(value.get<std::string>()) : std::nullopt;
    if (!found) refuse(name, fmt::format("\"{}\"", join(words_of<Enum>(), "\" or \"")));
    return *found;
  }
  DType dtype(const char* name) const {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (member(name) == dtype_name(dtype)) return dtype;
    }
    refuse(name, "\"bf16\" or \"f32\"");
  }
  ProductAlgorithm algorithm() const {
    constexpr const char* kDigits = "0123456789abcdef";
    const nlohmann::json& value = member("algorithm");
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    ProductAlgorithm result;
    if (text.size() != 2 * result.size() || text.find_first_not_of(kDigits) != std::string::npos) {
      refuse("algorithm", fmt::format("{} hexadecimal digits", 2 * result.size()));
    }
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return result;
  }
};

TunedProduct read_product(const EntryReader& entry) {
  TunedProduct product;
  GemmShape& shape = product.shape;
  shape.input = entry.dtype("input");
  shape.output = entry.dtype("output");
  shape.m = entry.whole("m", 1);
  shape.n = entry.whole("n", 1);
  shape.k = entry.whole("k", 1);
  shape.transpose_a = entry.flag("transpose_a");
  shape.transpose_b = entry.flag("transpose_b");
  shape.accumulate = entry.flag("accumulate");
  shape.lda = entry.whole("lda", shape.transpose_a ? shape.m : shape.k);
  shape.ldb = entry.whole("ldb", shape.transpose_b ? shape.k : shape.n);
  shape.ldc = entry.whole("ldc", shape.n);
  product.tf32 = entry.flag("tf32");
  product.algorithm = entry.algorithm();
  product.seconds = entry.seconds("seconds");
  product.heuristic_seconds = entry.seconds("heuristic_seconds");
  return product;
}

TunedGrouped read_grouped(const EntryReader& entry) {
  TunedGrouped grouped;
  grouped.shape = {.kind = entry.word_of<GroupedKind>("kind"),
                   .groups = entry.whole("groups", 1),
                   .rows = entry.whole("rows", 1),
                   .in = entry.whole("in", 1),
                   .out = entry.whole("out", 1),
                   .input = entry.dtype("input"),
                   .output = entry.dtype("output"),
                   .adds = entry.flag("adds")};
  grouped.library = entry.word_of<GroupedLibrary>("library");
  grouped.cutlass_seconds = entry.seconds_or_none("cutlass_seconds");
  grouped.cublaslt_seconds = entry.seconds_or_none("cublaslt_seconds");
  return grouped;
}

nlohmann::ordered_json tuned_product_json(const TunedProduct& product) {
  nlohmann::ordered_json json = gemm_json(product.shape);
  json["tf32"] = product.tf32;
  json["algorithm"] = hexadecimal(product.algorithm);
  json["seconds"] = product.seconds;
  json["heuristic_seconds"] = product.heuristic_seconds;
  return json;
}

nlohmann::ordered_json grouped_json(const TunedGrouped& grouped) {
  const GroupedShape& shape = grouped.shape;
  return {{"kind", word(shape.kind)},
          {"groups", shape.groups},
          {"rows", shape.rows},
          {"in", shape.in},
          {"out", shape.out},
          {"input", dtype_name(shape.input)},
          {"output", dtype_name(shape.output)},
          {"adds", shape.adds},
          {"library", word(grouped.library)},
          {"cutlass_seconds", grouped.cutlass_seconds},
          {"cublaslt_seconds", grouped.cublaslt_seconds}};
}

/// Returns the entries of an array, a line each.
template <typename Entry>
std::string array_text(const std::vector<Entry>& entries,
                       nlohmann::ordered_json (*json)(const Entry&)) {
  std::vector<std::string> lines;
  for (const Entry& entry : entries) lines.push_back("\n  " + json(entry).dump());
  return fmt::format("[{}{}]", join(lines, ","), lines.empty() ? "" : "\n ");
}

/// Reads an entry. Errors advise to tune again.
template <typename Entry>
Entry read_entry(const nlohmann::json& json, const std::string& path,
                 Entry (*read)(const EntryReader&)) {
  if (!json.is_object()) throw Error("{}: found no JSON object; {}", path, kTuneAgain);
  try {
    return read(EntryReader(json, path));
  } catch (const Error& error) {
    throw Error("{}; {}", error.what(), kTuneAgain);
  }
}

/// Reads the entries of an array. Throws Error if same(a, b) holds for two of them.
template <typename Entry, typename Same>
std::vector<Entry> read_array(const nlohmann::json& json, const char* name,
                              const std::string& origin, Entry (*read)(const EntryReader&),
                              Same&& same) {
  const auto array = json.find(name);
  if (array == json.end() || !array->is_array()) {
    throw Error("{}: \"{}\" is no array; {}", origin, name, kTuneAgain);
  }
  std::vector<Entry> entries;
  for (const nlohmann::json& element : *array) {
    const std::string path = fmt::format("{}: {}[{}]", origin, name, entries.size());
    Entry entry = read_entry(element, path, read);
    if (std::ranges::any_of(entries, [&](const Entry& other) { return same(other, entry); })) {
      throw Error("{}: this product stands in the table already; {}", path, kTuneAgain);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string text_member(const nlohmann::json& json, const char* name, const std::string& origin) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) {
    throw Error("{}: \"{}\" is no text; {}", origin, name, kTuneAgain);
  }
  return printable(found->get<std::string>());
}

void require_format(const nlohmann::json& json, const std::string& origin) {
  if (!json.is_object() || text_member(json, "format", origin) != kTableFormat) {
    throw Error("{} is no table of tuned products, which `tessera bench products` writes", origin);
  }
  const auto version = json.find("version");
  if (version != json.end() && *version == kTableVersion) return;
  throw Error("{}: \"version\" is {}, expected {}; {}", origin,
              version == json.end() ? "missing" : printable(version->dump()), kTableVersion,
              kTuneAgain);
}

std::string grouped_text(const std::vector<TunedGrouped>& grouped) {
  if (grouped.empty()) return "";
  Table printed({"groups", "rows", "weights", "product", "types", "CUTLASS", "cuBLASLt", "taken"});
  for (const TunedGrouped& entry : grouped) {
    const GroupedShape& shape = entry.shape;
    const auto rate = [&](double seconds) {
      return seconds == 0 ? "-" : fmt::format("{:.1f} TFLOP/s", shape.flops() / seconds * 1e-12);
    };
    printed.add({std::to_string(shape.groups), std::to_string(shape.rows),
                 fmt::format("[{}, {}]", shape.out, shape.in), std::string(word(shape.kind)),
                 fmt::format("{} to {}{}", dtype_name(shape.input), dtype_name(shape.output),
                             shape.adds ? ", added" : ""),
                 rate(entry.cutlass_seconds), rate(entry.cublaslt_seconds),
                 std::string(word(entry.library))});
  }
  return fmt::format("\n{}", printed.text());
}

}  // namespace

std::string tuned_products_json(const TunedTable& table) {
  return with_hash_line(fmt::format(
      "{{\n \"format\": \"{}\",\n \"version\": {},\n \"library\": {},\n \"device\": {},\n"
      " \"products\": {},\n \"grouped\": {}\n}}\n",
      kTableFormat, kTableVersion, nlohmann::json(table.library).dump(),
      nlohmann::json(table.device).dump(), array_text(table.products, tuned_product_json),
      array_text(table.grouped, grouped_json)));
}

TunedTable parse_tuned_products(std::string_view text, const std::string& origin) {
  // The format is checked before a missing hash line is reported: a file of another format has no
  // hash line either.
  if (has_hash_line(text)) check_hash_line(text, origin, kTuneAgain);
  constexpr int kLevels = 3;  // of nesting in a file
  const nlohmann::json json = parse_strict_json(text, origin, kLevels);
  require_format(json, origin);
  if (!has_hash_line(text)) {
    throw Error("{} has no line with its hash: it was changed; {}", origin, kTuneAgain);
  }
  return {.library = text_member(json, "library", origin),
          .device = text_member(json, "device", origin),
          .products = read_array(json, "products", origin, read_product,
                                 [](const TunedProduct& first, const TunedProduct& second) {
                                   return first.tf32 == second.tf32 &&
                                          tuned_shape(first.shape) == tuned_shape(second.shape);
                                 }),
          .grouped = read_array(json, "grouped", origin, read_grouped,
                                [](const TunedGrouped& first, const TunedGrouped& second) {
                                  return first.shape == second.shape;
                                })};
}

TunedTable read_tuned_products(const fs::path& path) {
  return parse_tuned_products(read_file(path), path.string());
}

std::string tuned_products_text(const TunedTable& table) {
  Table printed({"m", "n", "k", "transposed", "types", "TFLOP/s", "tuned", "gain"});
  for (const TunedProduct& product : table.products) {
    const GemmShape& shape = product.shape;
    const auto rate = [&](double seconds) {
      return fmt::format("{:.1f}", shape.flops() / seconds * 1e-12);
    };
    printed.add(
        {std::to_string(shape.m), std::to_string(shape.n), std::to_string(shape.k),
         fmt::format("{}{}", shape.transpose_a ? "A" : "", shape.transpose_b ? "B" : ""),
         fmt::format("{} to {}{}{}", dtype_name(shape.input), dtype_name(shape.output),
                     shape.accumulate ? ", added" : "", product.tf32 ? ", TF32" : ""),
         rate(product.heuristic_seconds), rate(product.seconds),
         fmt::format("{:+.1f} %", 100 * (product.heuristic_seconds / product.seconds - 1))});
  }
  return fmt::format("{} on {}\n{}{}", table.library, table.device, printed.text(),
                     grouped_text(table.grouped));
}

}  // namespace tessera
