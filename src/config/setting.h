#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/key.h"

namespace tessera {

/// One `key = value` as it was written, not yet checked against any rule.
struct Setting {
  std::string section;  ///< empty for a key that stands above the first section
  std::string key;      ///< empty for a section without keys
  ConfigValue value;
  std::string where;  ///< what an error about it starts with: "demo.toml:12", "--set train.steps=3"
};

/// The settings of a TOML text, section by section. `name` is what errors call it. Throws Error
/// with the line, the column and the reason when it is not TOML.
std::vector<Setting> settings_of_text(std::string_view text, const std::string& name);

/// The setting of an override `section.key=VALUE`, VALUE being TOML or a bare word that stands for
/// a text. Throws Error with the expected form when it is neither.
Setting setting_of_override(const std::string& text);

}  // namespace tessera
