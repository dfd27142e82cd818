#include "hardware/tuned_products_file.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash_line.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr const char* kTableFormat = "tessera tuned products";
constexpr int64_t kTableVersion = 1;
constexpr const char* kTuneAgain = "tune again with `tessera bench products`";

std::string hexadecimal(const ProductAlgorithm& algorithm) {
  std::string text;
  for (const std::byte byte : algorithm) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

/// One product of a file. Errors name the file and the product's number.
class ProductReader {
 public:
  ProductReader(const nlohmann::json& json, std::string place)
      : json_(json), place_(std::move(place)) {
    if (!json.is_object()) throw Error("{}: found no JSON object; {}", place_, kTuneAgain);
  }

  TunedProduct read() const {
    TunedProduct product;
    GemmShape& shape = product.shape;
    shape.input = dtype("input");
    shape.output = dtype("output");
    shape.m = whole("m", 1);
    shape.n = whole("n", 1);
    shape.k = whole("k", 1);
    shape.transpose_a = flag("transpose_a");
    shape.transpose_b = flag("transpose_b");
    shape.accumulate = flag("accumulate");
    shape.lda = whole("lda", shape.transpose_a ? shape.m : shape.k);
    shape.ldb = whole("ldb", shape.transpose_b ? shape.k : shape.n);
    shape.ldc = whole("ldc", shape.n);
    product.tf32 = flag("tf32");
    product.algorithm = algorithm();
    product.seconds = seconds("seconds");
    product.heuristic_seconds = seconds("heuristic_seconds");
    return product;
  }

 private:
  const nlohmann::json& member(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw Error("{}: there is no \"{}\"; {}", place_, name, kTuneAgain);
    return *found;
  }
  [[noreturn]] void wrong(const char* name, const std::string& expected) const {
    throw Error("{}: \"{}\" is {}, expected {}; {}", place_, name, printable(member(name).dump()),
                expected, kTuneAgain);
  }
  int64_t whole(const char* name, int64_t least) const {
    const nlohmann::json& value = member(name);
    constexpr int64_t kMost = int64_t{1} << 40;
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{kMost};
    if (!fits || value.get<int64_t>() < least) {
      wrong(name, fmt::format("a whole number from {} to {}", least, kMost));
    }
    return value.get<int64_t>();
  }
  bool flag(const char* name) const {
    if (!member(name).is_boolean()) wrong(name, "true or false");
    return member(name).get<bool>();
  }
  double seconds(const char* name) const {
    const nlohmann::json& value = member(name);
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      wrong(name, "a number above 0");
    }
    return value.get<double>();
  }
  DType dtype(const char* name) const {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (member(name) == dtype_name(dtype)) return dtype;
    }
    wrong(name, "\"bf16\" or \"f32\"");
  }
  ProductAlgorithm algorithm() const {
    constexpr const char* kDigits = "0123456789abcdef";
    const nlohmann::json& value = member("algorithm");
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    ProductAlgorithm result;
    if (text.size() != 2 * result.size() || text.find_first_not_of(kDigits) != std::string::npos) {
      wrong("algorithm", fmt::format("{} hexadecimal digits", 2 * result.size()));
    }
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return result;
  }

  const nlohmann::json& json_;
  std::string place_;
};

nlohmann::ordered_json product_json(const TunedProduct& product) {
  const GemmShape& shape = product.shape;
  return {{"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"input", dtype_name(shape.input)},
          {"output", dtype_name(shape.output)},
          {"transpose_a", shape.transpose_a},
          {"transpose_b", shape.transpose_b},
          {"accumulate", shape.accumulate},
          {"lda", shape.lda},
          {"ldb", shape.ldb},
          {"ldc", shape.ldc},
          {"tf32", product.tf32},
          {"algorithm", hexadecimal(product.algorithm)},
          {"seconds", product.seconds},
          {"heuristic_seconds", product.heuristic_seconds}};
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

}  // namespace

std::string tuned_products_json(const TunedProducts& table) {
  std::vector<std::string> lines;
  for (const TunedProduct& product : table.products) {
    lines.push_back("\n  " + product_json(product).dump());
  }
  return with_hash_line(fmt::format(
      "{{\n \"format\": \"{}\",\n \"version\": {},\n \"library\": {},\n \"device\": {},\n"
      " \"products\": [{}{}]\n}}\n",
      kTableFormat, kTableVersion, nlohmann::json(table.library).dump(),
      nlohmann::json(table.device).dump(), join(lines, ","), lines.empty() ? "" : "\n "));
}

TunedProducts parse_tuned_products(std::string_view text, const std::string& origin) {
  if (has_hash_line(text)) check_hash_line(text, origin, kTuneAgain);
  const nlohmann::json json = parse_strict_json(text, origin, 3);
  require_format(json, origin);
  if (!has_hash_line(text)) {
    throw Error("{} has no line with its hash: it was changed; {}", origin, kTuneAgain);
  }
  TunedProducts table{.library = text_member(json, "library", origin),
                      .device = text_member(json, "device", origin),
                      .products = {}};
  const auto products = json.find("products");
  if (products == json.end() || !products->is_array()) {
    throw Error("{}: \"products\" is no array; {}", origin, kTuneAgain);
  }
  for (const nlohmann::json& element : *products) {
    const std::string place = fmt::format("{}: products[{}]", origin, table.products.size());
    TunedProduct product = ProductReader(element, place).read();
    if (table.find(product.shape, product.tf32) != nullptr) {
      throw Error("{}: this product stands in the table already; {}", place, kTuneAgain);
    }
    table.products.push_back(product);
  }
  return table;
}

TunedProducts read_tuned_products(const fs::path& path) {
  return parse_tuned_products(read_file(path), path.string());
}

std::string tuned_products_text(const TunedProducts& table) {
  Table text({"m", "n", "k", "transposed", "types", "TFLOP/s", "tuned", "gain"});
  for (const TunedProduct& product : table.products) {
    const GemmShape& shape = product.shape;
    const auto rate = [&](double seconds) {
      return fmt::format("{:.1f}", shape.flops() / seconds * 1e-12);
    };
    text.add({std::to_string(shape.m), std::to_string(shape.n), std::to_string(shape.k),
              fmt::format("{}{}", shape.transpose_a ? "A" : "", shape.transpose_b ? "B" : ""),
              fmt::format("{} to {}{}{}", dtype_name(shape.input), dtype_name(shape.output),
                          shape.accumulate ? ", added" : "", product.tf32 ? ", TF32" : ""),
              rate(product.heuristic_seconds), rate(product.seconds),
              fmt::format("{:+.1f} %", 100 * (product.heuristic_seconds / product.seconds - 1))});
  }
  return fmt::format("{} on {}\n{}", table.library, table.device, text.text());
}

}  // namespace tessera
