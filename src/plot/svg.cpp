#include "plot/svg.h"

#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string valid_utf8(std::string_view text) {
  std::string buffer;
  int64_t replaced = 0;
  return std::string(repair_utf8(text, buffer, replaced));
}

/// Returns the offset at which each character of valid UTF-8 begins.
std::vector<size_t> character_offsets(std::string_view valid) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < valid.size(); i = next_character(valid, i + 1)) offsets.push_back(i);
  return offsets;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string result;
  const std::string valid = valid_utf8(text);
  for (size_t begin = 0, end = 0; begin < valid.size(); begin = end) {
    end = next_character(valid, begin + 1);
    const auto character = std::string_view(valid).substr(begin, end - begin);
    if (character == "&") {
      result += "&amp;";
    } else if (character == "<") {
      result += "&lt;";
    } else if (character == ">") {
      result += "&gt;";
    } else if (character == "\"") {
      result += "&quot;";
    } else if (static_cast<unsigned char>(character[0]) < 0x20 || character == "\xEF\xBF\xBE" ||
               character == "\xEF\xBF\xBF") {
      result += kReplacement;  // for control characters, U+FFFE and U+FFFF
    } else {
      result += character;
    }
  }
  return result;
}

size_t character_count(std::string_view text) { return character_offsets(valid_utf8(text)).size(); }

std::string shortened(std::string_view text, size_t length) {
  TESSERA_CHECK(length > 0, "a text of no characters");
  std::string valid = valid_utf8(text);
  const std::vector<size_t> offsets = character_offsets(valid);
  if (offsets.size() <= length) return valid;
  const size_t front = length / 2;         // characters before the "…"
  const size_t back = length - front - 1;  // characters after it
  const size_t end = back == 0 ? valid.size() : offsets[offsets.size() - back];
  return valid.substr(0, offsets[front]) + "…" + valid.substr(end);
}

std::string pixels(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string svg_text(Point at, Anchor anchor, std::string_view text, int font_size,
                     std::string_view attributes) {
  constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" font-size=\"{}\"{}{}>{}</text>\n",
                     pixels(at.x), pixels(at.y), kAnchors[static_cast<size_t>(anchor)], font_size,
                     attributes.empty() ? "" : " ", attributes, xml_text(text));
}

std::string svg_upward_text(Point centre, std::string_view text) {
  return svg_text(
      centre, Anchor::middle, text, 12,
      fmt::format("transform=\"rotate(-90 {} {})\"", pixels(centre.x), pixels(centre.y)));
}

std::string svg_path(std::span<const Point> points, std::string_view attributes) {
  std::string data;
  for (const Point& point : points) {
    data += fmt::format("{}{} {}", data.empty() ? "M" : " ", pixels(point.x), pixels(point.y));
  }
  return fmt::format("<path d=\"{}\" fill=\"none\" {}/>\n", data, attributes);
}

std::string svg_rectangle(Point corner, double width, double height, std::string_view fill) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                     pixels(corner.x), pixels(corner.y), pixels(width), pixels(height), fill);
}

std::string svg_document(double width, double height, std::string_view title,
                         std::string_view body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\" role=\"img\">\n"
      "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{3}</svg>\n",
      pixels(width), pixels(height), xml_text(title), body);
}

}  // namespace tessera
