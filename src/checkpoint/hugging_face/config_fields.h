#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::hugging_face {

/// Of a model's sizes.
inline constexpr int64_t kLargestSize = 1 << 24;

/// The keys of a JSON object that is not trusted. It remembers which were asked for, and every
/// error names the object's origin and the key. A null counts as a key that is left out.
class ConfigFields {
 public:
  /// `json` must outlive this.
  ConfigFields(const nlohmann::json& json, std::string origin);

  const std::string& origin() const { return origin_; }
  /// The value, or null.
  const nlohmann::json* find(const std::string& key);
  /// Whether the key is there, be it as a null.
  bool has(const std::string& key) const;

  std::optional<int64_t> size(const std::string& key, int64_t minimum, int64_t maximum);
  /// Throws Error where the key is left out.
  int64_t required_size(const std::string& key, int64_t minimum, int64_t maximum);
  /// A finite number.
  std::optional<double> number(const std::string& key, double minimum);
  std::optional<double> number_above_zero(const std::string& key);
  double required_number(const std::string& key, double minimum);
  bool flag(const std::string& key, bool standard);
  std::optional<std::string> text(const std::string& key);

  /// "origin: key is VALUE; expected EXPECTED" as an Error.
  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& found,
                           const std::string& expected) const;

  /// The keys that were not asked for and have a value, sorted.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::json& json_;
  std::string origin_;
  std::set<std::string> read_;
};

}  // namespace tessera::hugging_face
