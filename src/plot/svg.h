#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plot/curve.h"

namespace tessera {

/// Text as it may stand in XML, between elements and in attributes: markup escaped, broken UTF-8
/// and characters that XML 1.0 does not know replaced by U+FFFD.
std::string xml_text(std::string_view text);

/// The number of characters of a text.
size_t letters(std::string_view text);

/// At most `length` characters of valid UTF-8, the middle of a longer text left out: "runs/a…/b".
std::string shortened(std::string_view text, size_t length);

/// A number of pixels: one decimal, none where it is zero.
std::string pixels(double value);

/// Where a text's x and y are.
enum class Anchor { start, middle, end };

/// A <text> element, `text` as it is to be read; `more` are further attributes.
std::string svg_text(Point at, Anchor anchor, std::string_view text, int size = 12,
                     std::string_view more = "");

/// A <path> element through the points, not filled; `style` are its further attributes.
std::string svg_path(std::span<const Point> points, std::string_view style);

/// A whole document of that size: a white background, then `body`. `title` is its name for readers
/// that do not see it.
std::string svg_document(double width, double height, std::string_view title,
                         std::string_view body);

}  // namespace tessera
