#include "plot/heat_map.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

HeatMap example() {
  return {.title = "A <map>",
          .row_label = "M",
          .rows = {"16", "32"},
          .column_label = "N",
          .columns = {"8", "64", "128"},
          .panels = {{"K = 1", {{0.25, 7.5, 30}, {1, 250, std::nan("")}}},
                     {"K = 2", {{1, 2, 3}, {4, 5, 500}}},
                     {"K = 3", {{6, 6, 6}, {6, 6, 6}}}},
          .panels_across = 2,
          .unit = "GFLOP/s",
          .note = "small print"};
}

std::string texts_of(const std::string& svg) {
  std::string texts = "|";
  for (const auto& element : testing::parse_xml(svg)) texts += element.text + "|";
  return texts;
}

TEST(HeatMap, ShowsEveryValueWithItsNames) {
  const std::string texts = texts_of(draw(example()));
  for (const char* text :
       {"|A <map>|", "|K = 1|", "|K = 3|", "|16|", "|128|", "|M|", "|N|", "|0.25|", "|7.5|", "|30|",
        "|250|", "|500|", "|GFLOP/s|", "|small print|"}) {
    EXPECT_THAT(texts, HasSubstr(text));
  }
  EXPECT_EQ(draw(example()), draw(example()));
}

TEST(HeatMap, ColoursGoFromDarkToBright) {
  HeatMap map = example();
  map.panels = {{"", {{0, 10, 10}, {20, 20, 20}}}};
  const std::string svg = draw(map);
  EXPECT_THAT(svg, HasSubstr("fill=\"#440154\""));  // zero
  EXPECT_THAT(svg, HasSubstr("fill=\"#fde725\""));  // the largest
  EXPECT_THAT(svg, HasSubstr("fill=\"#269089\""));  // half of it, between two points of the scale
}

TEST(HeatMap, TheFirstRowIsAtTheBottom) {
  HeatMap map = example();
  map.panels = {{"", {{1, 2, 3}, {4, 5, 6}}}};
  std::map<std::string, double> heights;  // from the top
  for (const auto& element : testing::parse_xml(draw(map))) {
    const auto y = element.attributes.find("y");
    if (element.name == "text" && y != element.attributes.end()) {
      heights.emplace(element.text, std::stod(y->second));
    }
  }
  EXPECT_GT(heights.at("16"), heights.at("32"));
  EXPECT_EQ(heights.at("1.0"), heights.at("16"));
  EXPECT_EQ(heights.at("3.0"), heights.at("16"));
  EXPECT_EQ(heights.at("4.0"), heights.at("32"));
}

TEST(HeatMap, WhatWasNotMeasuredIsGrey) {
  HeatMap map = example();
  const auto greys = [](const std::string& svg) {
    size_t count = 0;
    for (const auto& element : testing::parse_xml(svg)) {
      const auto fill = element.attributes.find("fill");
      if (fill != element.attributes.end() && fill->second == "#eee") ++count;
    }
    return count;
  };
  EXPECT_EQ(greys(draw(map)), 1U);
}

}  // namespace
}  // namespace tessera
