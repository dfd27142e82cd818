#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "ops/gemm/tuned_products.h"
#include "ops/moe/tuned_groups.h"

namespace tessera {

/// The result of a tuning run. It is valid for one version of a library on one kind of device.
struct TunedTable {
  std::string library;  ///< "cuBLASLt 130100"
  std::string device;   ///< "NVIDIA H200"
  std::vector<TunedProduct> products;
  std::vector<TunedGrouped> grouped;

  bool operator==(const TunedTable&) const = default;
};

/// Returns the text of a table of tuned products: a JSON object with a hash line, "format",
/// "version", "library", "device", "products" and "grouped". Each product has a line, with its
/// shape, the bytes of its algorithm in hexadecimal digits, and the seconds of a run with it and
/// with the library's own choice. Each product of groups has a line, with the faster library and
/// the seconds of both.
std::string tuned_products_json(const TunedTable& table);

/// Reads a table. Throws Error, naming the file and the member, if the file is damaged or is not
/// such a table, and if it has a product twice.
TunedTable read_tuned_products(const fs::path& path);
/// Reads a table from its text. `origin` is the file's name in errors.
TunedTable parse_tuned_products(std::string_view text, const std::string& origin);

/// Returns tables of the products for people: shape, TFLOP/s with the library's own choice and with
/// the fastest algorithm, and for groups TFLOP/s of each library.
std::string tuned_products_text(const TunedTable& table);

}  // namespace tessera
