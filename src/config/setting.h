#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/rule.h"

namespace tessera {

/// One `key = value` of a file or an override, not yet checked against any rule.
struct Setting {
  std::string section;  ///< empty for a key above the first section
  std::string key;      ///< empty for a section or a table without keys
  ConfigValue value;
  std::string where;  ///< the start of errors: "demo.toml:12", "override train.steps=3"
  // For a key of a list of tables: the name of the list, and the number or name of the table. A
  // setting that names a list and no table empties the list.
  std::string list;
  std::string table;
};

/// Reads the settings of a TOML text, section by section. Errors call the text `name`. Throws Error
/// with the line, the column and the reason when the text is not TOML.
std::vector<Setting> settings_of_text(std::string_view text, const std::string& name);

/// Reads the settings of an override `section.key=VALUE`. VALUE is TOML, or a bare word that stands
/// for a text. Returns one setting; if VALUE is a list of tables, returns the settings of all its
/// tables. `section.list.TABLE.key=VALUE` reaches a key of one table. Throws Error with the
/// expected form for any other text.
std::vector<Setting> settings_of_override(const std::string& text);

}  // namespace tessera
