#include "plot/colour.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace tessera {

std::string hex_text(const Colour& colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", std::lround(colour.red), std::lround(colour.green),
                     std::lround(colour.blue));
}

Colour colour_of_hex(std::string_view text) {
  constexpr int kHex = 16;
  unsigned value = 0;
  const char* const end = text.data() + text.size();
  const bool has_size = text.size() == 7 && text[0] == '#';
  TESSERA_CHECK(has_size && std::from_chars(text.data() + 1, end, value, kHex).ptr == end,
                "a colour of '{}'", text);
  const auto part = [&](int shift) { return static_cast<double>(value >> shift & 0xFFU); };
  return {part(16), part(8), part(0)};
}

Colour mixed(const Colour& from, const Colour& to, double weight) {
  return {std::lerp(from.red, to.red, weight), std::lerp(from.green, to.green, weight),
          std::lerp(from.blue, to.blue, weight)};
}

std::string_view text_fill_on(const Colour& ground) {
  constexpr double kLight = 120;  // of the perceived lightness, from 0 to 255
  const double lightness = 0.3 * ground.red + 0.59 * ground.green + 0.11 * ground.blue;
  return lightness > kLight ? "fill=\"#000\"" : "fill=\"#fff\"";
}

}  // namespace tessera
