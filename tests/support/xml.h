#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <expat.h>
#include <fmt/format.h>

namespace tessera::testing {

/// An element of an XML document, in the document's order.
struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  ///< directly within it
};

/// The elements of a document. Throws std::runtime_error when it is not well-formed XML in UTF-8.
inline std::vector<XmlElement> parse_xml(std::string_view document) {
  struct State {
    std::vector<XmlElement> elements;
    std::vector<size_t> open;
  } state;
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate("UTF-8"), &XML_ParserFree);
  XML_SetUserData(parser.get(), &state);
  XML_SetElementHandler(
      parser.get(),
      [](void* data, const XML_Char* name, const XML_Char** attributes) {
        auto& [elements, open] = *static_cast<State*>(data);
        open.push_back(elements.size());
        elements.push_back({name, {}, {}});
        for (; *attributes != nullptr; attributes += 2) {
          elements.back().attributes[attributes[0]] = attributes[1];
        }
      },
      [](void* data, const XML_Char* /*name*/) { static_cast<State*>(data)->open.pop_back(); });
  XML_SetCharacterDataHandler(parser.get(), [](void* data, const XML_Char* text, int length) {
    auto& [elements, open] = *static_cast<State*>(data);
    elements[open.back()].text.append(text, static_cast<size_t>(length));
  });
  if (XML_Parse(parser.get(), document.data(), static_cast<int>(document.size()), 1) !=
      XML_STATUS_OK) {
    throw std::runtime_error(fmt::format("line {}: {}", XML_GetCurrentLineNumber(parser.get()),
                                         XML_ErrorString(XML_GetErrorCode(parser.get()))));
  }
  return state.elements;
}

/// The texts of all elements in order: "|first|second|".
inline std::string texts_of(const std::string& document) {
  std::string texts = "|";
  for (const XmlElement& element : parse_xml(document)) texts += element.text + "|";
  return texts;
}

}  // namespace tessera::testing
