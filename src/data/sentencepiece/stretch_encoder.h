#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// Cuts stretches of normalised text into pieces, each stretch by itself. Used by one thread.
class StretchEncoder {
 public:
  struct Token {
    int32_t id;
    size_t end;  ///< its end in the stretch; of a character's bytes, all but the last have its
                 ///< beginning here
    bool operator==(const Token&) const = default;
  };

  virtual ~StretchEncoder() = default;

  /// Appends the tokens of `stretch`; unknown ones become one with an unknown one before them where
  /// the model joins them.
  virtual void encode(std::string_view stretch, std::vector<int32_t>& tokens) = 0;
  virtual std::vector<Token> encode_with_ends(std::string_view stretch) = 0;
};

}  // namespace tessera
