#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// A token that is searched for in the text before it is split and merged, as declared in a
/// tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      ///< a control token, which no text may produce
  bool single_word = false;  ///< matches only without a letter, digit or underscore beside it
  bool strip_left = false;   ///< includes the white space before it
  bool strip_right = false;  ///< includes the white space after it
  bool normalized = false;   ///< searched for after normalisation, otherwise before

  bool operator==(const AddedToken&) const = default;
};

}  // namespace tessera
