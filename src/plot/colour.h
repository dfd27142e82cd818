#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// A colour of a picture. Its parts are from 0 to 255.
struct Colour {
  double red = 0;
  double green = 0;
  double blue = 0;
};

/// Returns a colour as "#add3f0".
std::string hex_text(const Colour& colour);
/// Returns the colour that hex_text() gives that text for. Upper case is allowed.
Colour colour_of_hex(std::string_view text);

/// Returns a colour between two: `from` for a weight of 0, and `to` for 1.
Colour mixed(const Colour& from, const Colour& to, double weight);

/// Returns the attribute that fills a text on a ground of that colour: black on a light one, white
/// on a dark one.
std::string_view text_fill_on(const Colour& ground);

}  // namespace tessera
