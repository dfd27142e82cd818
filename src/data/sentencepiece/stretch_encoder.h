#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// An encoder that cuts stretches of normalised text into pieces, each stretch by itself. A stretch
/// is a part of a text that begins and ends at offsets that no piece should span. Only one thread
/// may use an encoder.
class StretchEncoder {
 public:
  struct Token {
    int32_t id;
    /// The offset in the stretch at which the token ends. If a character becomes one token per
    /// byte, all but the last of these tokens end at the character's start.
    size_t end;
    bool operator==(const Token&) const = default;
  };

  virtual ~StretchEncoder() = default;

  /// Appends the tokens of `stretch`. If the model joins unknown tokens, consecutive ones become
  /// one, including one that is already at the end of `tokens`.
  virtual void encode(std::string_view stretch, std::vector<int32_t>& tokens) = 0;
  /// Returns the tokens of `stretch` alone, with their ends.
  virtual std::vector<Token> encode_with_ends(std::string_view stretch) = 0;
};

}  // namespace tessera
