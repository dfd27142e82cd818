#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plot/curve.h"

namespace tessera {

// The parts of SVG documents as strings: the texts in them, the elements, and the document itself.
// A character here is a Unicode code point, and a position is in pixels.

/// Returns a text for XML, between elements and in attributes. Markup is escaped. U+FFFD replaces
/// invalid UTF-8, control characters (tabs and line breaks as well), U+FFFE and U+FFFF.
std::string xml_text(std::string_view text);

/// Returns the number of characters of a text.
size_t character_count(std::string_view text);

/// Returns the text as valid UTF-8 of at most `length` characters. `length` is at least 1. "…"
/// replaces the middle of a longer text: "runs/a…/b".
std::string shortened(std::string_view text, size_t length);

/// Returns a number of pixels with one decimal, or with none if that decimal is zero.
std::string pixels(double value);

/// The part of a text that its x and y refer to.
enum class Anchor { start, middle, end };

/// Returns a <text> element with further `attributes`. Escapes `text`.
std::string svg_text(Point at, Anchor anchor, std::string_view text, int font_size = 12,
                     std::string_view attributes = "");

/// Returns a text that runs upwards, around `centre`: the label of a y axis.
std::string svg_upward_text(Point centre, std::string_view text);

/// Returns a <path> element through the points, not filled, with further `attributes`.
std::string svg_path(std::span<const Point> points, std::string_view attributes);

/// Returns a <rect> element, filled with a colour.
std::string svg_rectangle(Point corner, double width, double height, std::string_view fill);

/// Returns a whole document of that size: a white background, then `body`. Screen readers read out
/// `title`.
std::string svg_document(double width, double height, std::string_view title,
                         std::string_view body);

}  // namespace tessera
