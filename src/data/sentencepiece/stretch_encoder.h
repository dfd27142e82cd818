#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// An encoder that cuts stretches of normalised text into pieces, each stretch by itself. Only one
/// thread may use it.
class StretchEncoder {
 public:
  struct Token {
    int32_t id;
    size_t end;  ///< its end in the stretch; for a character's byte tokens but the last, the
                 ///< character's begin
    bool operator==(const Token&) const = default;
  };

  virtual ~StretchEncoder() = default;

  /// Appends the tokens of `stretch`. If the model joins unknown tokens, consecutive ones become
  /// one, including one that is already at the end of `tokens`.
  virtual void encode(std::string_view stretch, std::vector<int32_t>& tokens) = 0;
  virtual std::vector<Token> encode_with_ends(std::string_view stretch) = 0;
};

}  // namespace tessera
