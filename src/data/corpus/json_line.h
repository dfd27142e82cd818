#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// A parser that extracts the documents from lines of JSON Lines.
class JsonLineParser {
 public:
  /// `text_field` is the field that holds the document. A name with dots, such as "content.text",
  /// means a field of exactly that name if the object has one. Otherwise it means the field "text"
  /// of the object in the field "content". A line with two such fields is invalid.
  explicit JsonLineParser(std::string text_field);
  ~JsonLineParser();
  JsonLineParser(const JsonLineParser&) = delete;
  JsonLineParser& operator=(const JsonLineParser&) = delete;

  /// Parses `line`, which is valid UTF-8. Returns an empty text and sets `document`, which is valid
  /// until the next call; or returns what is wrong with the line. Escapes of surrogates without
  /// their partners become U+FFFD, and their number is added to `replaced`.
  std::string parse(std::string_view line, std::string_view& document, int64_t& replaced);

 private:
  struct Parser;
  std::string text_field_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace tessera
