#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plot/curve.h"

namespace tessera {

/// Returns a text for XML, between elements and in attributes. Markup is escaped. Invalid UTF-8 and
/// characters that XML 1.0 does not allow are replaced by U+FFFD.
std::string xml_text(std::string_view text);

/// Returns the number of characters of a text.
size_t letters(std::string_view text);

/// Returns at most `length` characters of valid UTF-8. The middle of a longer text is left out:
/// "runs/a…/b".
std::string shortened(std::string_view text, size_t length);

/// Returns a number of pixels with one decimal, or with none if that decimal is zero.
std::string pixels(double value);

/// The part of a text that its x and y refer to.
enum class Anchor { start, middle, end };

/// Returns a <text> element. `text` is not yet escaped; `more` holds further attributes.
std::string svg_text(Point at, Anchor anchor, std::string_view text, int size = 12,
                     std::string_view more = "");

/// Returns a <path> element through the points, not filled. `style` holds its further attributes.
std::string svg_path(std::span<const Point> points, std::string_view style);

/// Returns a whole document of that size: a white background, then `body`. Screen readers read out
/// `title`.
std::string svg_document(double width, double height, std::string_view title,
                         std::string_view body);

}  // namespace tessera
