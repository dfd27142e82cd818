#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/rule.h"

namespace tessera {

/// One `key = value` of a file or an override, not yet checked against any rule. A section or a
/// table without keys is a setting with an empty key. In a list of tables, a setting that names the
/// list and no table empties the list.
struct Setting {
  std::string section;  ///< empty for a key above the first section
  std::string key;
  ConfigValue value;
  std::string where;  ///< the start of errors: "demo.toml:12", "override train.steps=3"
  std::string list;   ///< the list of tables that the key is in; empty for other keys
  std::string table;  ///< the number or the name of its table
};

/// Reads the settings of a TOML text, section by section. `name` is the text's name in errors.
/// Throws Error with the line, the column and the reason when the text is not TOML.
std::vector<Setting> settings_of_text(std::string_view text, const std::string& name);

/// Reads the settings of an override: `train.steps=3`, `model.name=llama` (a bare word is a
/// string), `data.sources.web.weight=0.5` (a key of one table of a list). Otherwise the value is
/// TOML. Returns one setting; for a list of tables, those of all its tables. Throws Error with the
/// expected form for any other text.
std::vector<Setting> settings_of_override(const std::string& text);

}  // namespace tessera
