#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::hugging_face {

// Limits far beyond any model, so that products of sizes do not overflow.
inline constexpr int64_t kLargestSize = 1 << 24;  ///< of a model's dims
inline constexpr int64_t kMostExperts = 1 << 12;

/// Reads the keys of an untrusted JSON object, and remembers which keys were requested. Every error
/// names the object's origin and the key. All functions but has() treat null as a missing key.
class ConfigFields {
 public:
  /// `json` must outlive this.
  ConfigFields(const nlohmann::json& json, std::string origin);

  const std::string& origin() const { return origin_; }
  /// Returns the value, or null if the key is left out.
  const nlohmann::json* find(const std::string& key);
  /// Returns whether the key is present, even with the value null.
  bool has(const std::string& key) const;

  // The readers of values return nothing, or `default_value`, if the key is left out. They throw
  // Error on a value of another kind or out of range. A reader named required_... also throws Error
  // if the key is left out.

  /// Returns a whole number.
  std::optional<int64_t> size(const std::string& key, int64_t minimum, int64_t maximum);
  int64_t required_size(const std::string& key, int64_t minimum, int64_t maximum);
  /// Returns a finite number.
  std::optional<double> number(const std::string& key, double minimum);
  std::optional<double> number_above_zero(const std::string& key);
  double required_number(const std::string& key, double minimum);
  bool flag(const std::string& key, bool default_value);
  std::optional<std::string> text(const std::string& key);

  /// Throws "origin: key is VALUE; expected EXPECTED" as an Error.
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

  /// Returns the keys that have a value and were not requested, sorted.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::json& json_;
  std::string origin_;
  std::set<std::string> read_;
};

}  // namespace tessera::hugging_face
