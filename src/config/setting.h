#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/key.h"

namespace tessera {

/// One `key = value` as it was written, not yet checked against any rule.
struct Setting {
  std::string section;  ///< empty for a key that stands above the first section
  std::string key;      ///< empty for a section or a table without keys
  ConfigValue value;
  std::string where;  ///< what an error about it starts with: "demo.toml:12", "--set train.steps=3"
  /// Of a key of a list of tables: the list, and which of its tables by number or name. A setting
  /// that names a list and no table empties the list.
  std::string list;
  std::string table;
};

/// The settings of a TOML text, section by section. `name` is what errors call it. Throws Error
/// with the line, the column and the reason when it is not TOML.
std::vector<Setting> settings_of_text(std::string_view text, const std::string& name);

/// The settings of an override `section.key=VALUE`, VALUE being TOML or a bare word that stands for
/// a text: one, or where VALUE is a list of tables all of theirs. `section.list.TABLE.key=VALUE`
/// reaches a key of one table. Throws Error with the expected form when it is neither.
std::vector<Setting> settings_of_override(const std::string& text);

}  // namespace tessera
