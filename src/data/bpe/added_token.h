#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// A token that is looked for in the text before anything else is done with it, as a tokenizer.json
/// declares it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      ///< a control token, which no text may become
  bool single_word = false;  ///< only where no letter, digit or underscore stands beside it
  bool strip_left = false;   ///< takes the white space before it along
  bool strip_right = false;  ///< takes the white space after it along
  bool normalized = false;   ///< looked for after the normalisation of the text, otherwise before

  bool operator==(const AddedToken&) const = default;
};

}  // namespace tessera
