#include "metrics/plot/plot.h"

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plot/style.h"
#include "plot/svg.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::parse_xml;
using testing::XmlElement;

const std::string kBlue = colour(0), kOrange = colour(1);

class PlotTest : public ::testing::Test {
 protected:
  /// A run of that name whose lines are `lines`.
  RunMetrics run(const std::string& name, const std::string& lines) const {
    folder_.write(name + "/metrics.jsonl", lines);
    return RunMetrics(folder_ / name);
  }
  /// A run of so many steps.
  RunMetrics steps(const std::string& name, int count, const std::string& more = "") const {
    std::string lines;
    for (int step = 1; step <= count; ++step) {
      lines += fmt::format("{{\"step\":{0},\"loss\":{1},\"tokens\":{2},\"seconds\":60{3}}}\n", step,
                           2 + 8.0 / step, step * 1000, more);
    }
    return run(name, lines);
  }
  static std::vector<XmlElement> draw(const std::vector<RunMetrics>& runs,
                                      const PlotOptions& options = {}) {
    const std::string svg = plot_metrics(runs, options);
    EXPECT_EQ(svg, plot_metrics(runs, options)) << "equal runs give equal pictures";
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    return parse_xml(svg);
  }
  static std::vector<std::string> texts(const std::vector<XmlElement>& elements) {
    std::vector<std::string> result;
    for (const XmlElement& element : elements) {
      if (element.name == "text") result.push_back(element.text);
    }
    return result;
  }
  /// The numbers of the paths that have that stroke and width, x and y in turn; a path each.
  static std::vector<std::vector<double>> lines(const std::vector<XmlElement>& elements,
                                                const std::string& stroke,
                                                const std::string& width = "1.8") {
    std::vector<std::vector<double>> result;
    for (const XmlElement& element : elements) {
      const auto& a = element.attributes;
      if (element.name != "path" || !a.contains("stroke") || a.at("stroke") != stroke) continue;
      if ((a.contains("stroke-width") ? a.at("stroke-width") : "") != width) continue;
      std::istringstream numbers(a.at("d").substr(1));
      result.emplace_back(std::istream_iterator<double>(numbers), std::istream_iterator<double>());
    }
    return result;
  }
  /// Markers of a run: what is moved to its place.
  static int64_t markers(const std::vector<XmlElement>& elements, const std::string& fill) {
    return std::count_if(elements.begin(), elements.end(), [&](const XmlElement& element) {
      return element.attributes.contains("transform") && element.attributes.contains("fill") &&
             element.attributes.at("fill") == fill;
    });
  }

  TemporaryFolder folder_;
};

TEST_F(PlotTest, DrawsEachStepFaintAndTheMeanStrong) {
  const auto svg = draw({steps("first", 90)});
  const auto strong = lines(svg, kBlue), faint = lines(svg, kBlue, "");
  ASSERT_EQ(strong.size(), 1U);
  ASSERT_EQ(faint.size(), 1U);
  EXPECT_EQ(strong[0].size(), 180U);
  EXPECT_EQ(faint[0].size(), 180U);
  EXPECT_NE(strong[0], faint[0]);
  EXPECT_THAT(texts(svg),
              AllOf(Contains("first"), Contains("step"), Contains("loss (nats a token)"),
                    Contains("faint: each step; strong: mean of 3 steps")));
  // Without smoothing the steps themselves are the strong line.
  const auto plain = draw({steps("first", 90)}, {.smooth = 1});
  EXPECT_EQ(lines(plain, kBlue), faint);
  EXPECT_TRUE(lines(plain, kBlue, "").empty());
}

TEST_F(PlotTest, RunsOfAnyLengthAreToldApartByNameColourAndDashes) {
  const auto svg = draw({steps("a<b&\"c", 30), steps("short", 5), steps("one", 1)});
  EXPECT_THAT(texts(svg), AllOf(Contains("a<b&\"c"), Contains("short"), Contains("one")));
  EXPECT_EQ(lines(svg, kBlue).size(), 2U) << "the curve, and its line in the legend";
  EXPECT_EQ(lines(svg, kOrange).size(), 2U);
  EXPECT_EQ(lines(svg, colour(2)).size(), 1U) << "one step is a dot";
  const auto dot = std::find_if(svg.begin(), svg.end(),
                                [](const XmlElement& element) { return element.name == "circle"; });
  ASSERT_NE(dot, svg.end());
  EXPECT_EQ(dot->attributes.at("fill"), colour(2));
  std::set<std::string> styles;
  for (size_t i = 0; i < kStyles; ++i) styles.insert(colour(i) + dashes(i));
  EXPECT_EQ(styles.size(), kStyles);
}

TEST_F(PlotTest, HeldOutLossesAreMarkersInThePanelOfTheLoss) {
  std::string text;
  for (int step = 1; step <= 20; ++step) {
    text += fmt::format("{{\"step\":{},\"loss\":3{}}}\n", step,
                        step % 5 == 0 ? ",\"held_out_loss\":3.25" : "");
  }
  const RunMetrics evaluated = run("evaluated", text);
  EXPECT_EQ(markers(draw({evaluated}), kBlue), 4);
  EXPECT_EQ(markers(draw({steps("plain", 20)}), kBlue), 0);
  // In a panel of its own it is a line with markers.
  const auto own = draw({evaluated}, {.metrics = {"held_out_loss"}});
  EXPECT_EQ(markers(own, kBlue), 4);
  EXPECT_EQ(lines(own, kBlue)[0].size(), 8U);
}

TEST_F(PlotTest, ALineWithItsNameStandsWhereAPhaseBegins) {
  std::string rows;
  for (int step = 1; step <= 100; ++step) {
    const int phase = step <= 25 ? 1 : step <= 75 ? 2 : 3;
    rows += fmt::format("{{\"step\":{},\"loss\":{},\"phase\":{},\"phase_name\":\"{}\"}}\n", step,
                        2 + 8.0 / step, phase,
                        phase == 1   ? "phase 1"
                        : phase == 2 ? "math"
                                     : "long <context>");
  }
  const auto picture = draw({run("phases", rows)}, {.metrics = {"loss"}});
  EXPECT_THAT(texts(picture),
              AllOf(Contains("math"), Contains("long <context>"), Not(Contains("phase 1"))));
  const auto borders = lines(picture, "#888", "");
  ASSERT_EQ(borders.size(), 2U);
  // The axis goes from 0 to 100, and the last step before each border is 25 and 75.
  const double left = borders[0][0], right = borders[1][0];
  const auto corner = lines(picture, "#333", "");
  double first = 1e9, last = 0;
  for (const auto& line : corner) {
    for (size_t i = 0; i < line.size(); i += 2) {
      first = std::min(first, line[i]);
      last = std::max(last, line[i]);
    }
  }
  EXPECT_NEAR(left, first + 0.25 * (last - first), 0.2);
  EXPECT_NEAR(right, first + 0.75 * (last - first), 0.2);
  EXPECT_EQ(borders[0][0], borders[0][2]) << "upright";
  // A picture that ends before the second one shows the first alone.
  const auto part = draw({run("phases", rows)}, {.metrics = {"loss"}, .to = 50});
  EXPECT_EQ(lines(part, "#888", "").size(), 1U);
  EXPECT_TRUE(lines(draw({steps("none", 100)}), "#888", "").empty());
}

TEST_F(PlotTest, WhatIsNotFiniteIsAGapAndWhatIsMissingIsNot) {
  const auto svg =
      draw({run("gaps",
                "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n"
                "{\"step\":3,\"loss\":null}\n{\"step\":4,\"loss\":3}\n"
                "{\"step\":5}\n{\"step\":6,\"loss\":3}\n{\"step\":7,\"loss\":1e300}\n")});
  const auto curve = lines(svg, kBlue);
  ASSERT_EQ(curve.size(), 2U);
  EXPECT_EQ(curve[0].size(), 4U);
  EXPECT_EQ(curve[1].size(), 4U) << "steps 4 and 6";
}

TEST_F(PlotTest, AConstantHasItsPlaceInTheMiddle) {
  for (const char* value : {"0", "-3", "1234567890", "1e-9", "1e90"}) {
    std::string text;
    for (int step = 1; step <= 3; ++step) {
      text += fmt::format("{{\"step\":{},\"memory_bytes\":{}}}\n", step, value);
    }
    const auto svg = draw({run("constant", text)}, {.metrics = {"memory_bytes"}});
    const auto curve = lines(svg, kBlue);
    ASSERT_EQ(curve.size(), 1U) << value;
    EXPECT_NEAR(curve[0][1], (46 + 374) / 2, 40) << value;
    EXPECT_EQ(curve[0][1], curve[0][5]) << value;
    EXPECT_GE(texts(svg).size(), 6U) << value;
  }
}

TEST_F(PlotTest, ASpikeOfALongRunStaysAndThePictureIsSmall) {
  std::string text;
  for (int step = 1; step <= 100000; ++step) {
    text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, step == 54321 ? 90.0 : 3 + step % 7);
  }
  const RunMetrics long_run = run("long", text);
  const std::string svg = plot_metrics({&long_run, 1}, {});
  EXPECT_LT(svg.size(), 100000U);
  double top = 1e9, bottom = 0;
  for (const auto& path : lines(parse_xml(svg), kBlue, "")) {
    for (size_t i = 1; i < path.size(); i += 2) {
      top = std::min(top, path[i]);
      bottom = std::max(bottom, path[i]);
    }
  }
  // The values span the panel but for its margins.
  EXPECT_GT(bottom - top, 280);
}

TEST_F(PlotTest, TheXAxisCountsWhatIsAskedFor) {
  const RunMetrics five = steps("five", 5);
  EXPECT_THAT(texts(draw({five}, {.x = PlotAxis::tokens})),
              AllOf(Contains("tokens"), Contains("5.0k")));
  // 60 seconds a step: five minutes, counted from the run's start.
  EXPECT_THAT(texts(draw({five}, {.x = PlotAxis::seconds})),
              AllOf(Contains("time in steps (min)"), Contains("5.0")));
  EXPECT_THAT(texts(draw({steps("f", 5, ",\"flops\":2e18")}, {.x = PlotAxis::flops})),
              Contains("2.0E"));
  EXPECT_THAT(error_of([&] { draw({five}, {.x = PlotAxis::flops}); }),
              AllOf(HasSubstr("flops"), HasSubstr("five"), HasSubstr("--x")));
  EXPECT_THAT(texts(draw({five}, {.logarithmic_x = true, .logarithmic_y = true})), Contains("1"));
}

TEST_F(PlotTest, ARangeCutsStepsOffAndScalesToTheRest) {
  const RunMetrics run = steps("run", 100);
  const auto svg = draw({run}, {.from = 51, .to = 100, .smooth = 1});
  EXPECT_EQ(lines(svg, kBlue)[0].size(), 100U);
  EXPECT_THAT(texts(svg), AllOf(Contains("60"), Contains("2.10"), Not(Contains("0"))));
  EXPECT_THAT(error_of([&] { draw({run}, {.from = 200}); }), HasSubstr("go from 0 to 100"));
  EXPECT_THAT(error_of([&] { draw({run}, {.from = 200, .to = 300}); }),
              HasSubstr("no run has a number to draw between 200 and 300"));
  EXPECT_THAT(error_of([&] { draw({run}, {.from = 0, .logarithmic_x = true}); }),
              HasSubstr("above zero"));
}

TEST_F(PlotTest, TheXAxisBeginsAtTheFirstXWhereThatIsFarFromZero) {
  const auto part = [&](int64_t first, int64_t last) {
    std::string text;
    for (int64_t step = first; step <= last; ++step) {
      text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, step % 2);
    }
    return lines(draw({run("part", text)}, {.smooth = 1}), kBlue).at(0);
  };
  constexpr double kLeft = 76, kRight = 840;  // of the panel
  EXPECT_EQ(part(100000, 100049).front(), kLeft);
  EXPECT_EQ(part(100000, 100049)[98], kRight);
  EXPECT_EQ(part(51, 100).front(), kLeft);
  EXPECT_NEAR(part(50, 100).front(), (kLeft + kRight) / 2, 0.1) << "half of the axis";
  // Steps that no axis of their own tells apart.
  EXPECT_NEAR(part(4000000000000000, 4000000000000001).front(), kRight, 0.1);
}

TEST_F(PlotTest, ASinglePointIsALargeDotInTheMiddle) {
  for (const int64_t step : {0, 1, 7, 100000}) {
    const auto svg = draw({run("one", fmt::format("{{\"step\":{},\"loss\":3}}\n", step))});
    const auto dot = std::find_if(
        svg.begin(), svg.end(), [](const XmlElement& element) { return element.name == "circle"; });
    ASSERT_NE(dot, svg.end());
    EXPECT_EQ(dot->attributes.at("cx"), "458");
    EXPECT_EQ(dot->attributes.at("r"), "4");
  }
}

TEST_F(PlotTest, TheLabelOfTheYAxisIsClearOfItsTicks) {
  // The steps are small against the numbers, so that labels need up to nine digits.
  for (const auto& [base, step] : {std::pair<int64_t, int64_t>{0, 1},
                                   {12345678, 10},
                                   {123456789, 1000},
                                   {1234567890123, 2000000}}) {
    std::string text;
    for (int64_t i = 1; i <= 5; ++i) {
      text += fmt::format("{{\"step\":{},\"loss\":1,\"flops\":{}}}\n", i, base + i * step);
    }
    const auto svg = draw({run("long", text)}, {.metrics = {"flops", "loss"}});
    double label = 0, leftmost = 1e9;
    for (const XmlElement& element : svg) {
      if (element.name != "text" || std::stod(element.attributes.at("x")) > 500) continue;
      const double x = std::stod(element.attributes.at("x"));
      if (element.text == "useful FLOPs") label = x;
      if (element.attributes.at("text-anchor") == "end") {
        leftmost = std::min(leftmost, x - 7.6 * static_cast<double>(character_count(element.text)));
      }
    }
    EXPECT_GE(leftmost - label, 6) << base;
    EXPECT_GE(label, 14) << base << ": the label's letters have their height to its left";
  }
}

TEST_F(PlotTest, AnyNumberOfTheLinesCanBeDrawn) {
  const RunMetrics run = steps("mix", 4, ",\"sources\":{\"web\":{\"tokens\":5}},\"note\":\"text\"");
  EXPECT_THAT(run.metrics(), ElementsAre("loss", "seconds", "sources/web/tokens", "tokens"));
  const auto svg = draw({run, steps("plain", 4)}, {.metrics = {"sources/web/tokens", "loss"}});
  EXPECT_THAT(texts(svg), AllOf(Contains("sources/web/tokens"), Contains("loss (nats a token)")));
  EXPECT_THAT(error_of([&] { draw({run}, {.metrics = {"los"}}); }),
              AllOf(HasSubstr("did you mean 'loss'"), HasSubstr("sources/web/tokens, tokens")));
  EXPECT_THAT(error_of([&] {
                draw({run}, {.metrics = {"loss", "tokens", "loss"}});
              }),
              HasSubstr("'loss' is given twice"));
}

TEST_F(PlotTest, LaterLinesCountWhereStepsGoBack) {
  const RunMetrics joined = run("joined",
                                "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n"
                                "{\"step\":3,\"loss\":3,\"held_out_loss\":9}\n"
                                "{\"step\":2,\"loss\":20}\n{\"step\":3,\"loss\":30}\n");
  EXPECT_THAT(joined.steps(), ElementsAre(1, 2, 3));
  EXPECT_EQ(joined.at("loss", 1), 20);
  EXPECT_EQ(joined.at("loss", 2), 30);
  EXPECT_EQ(joined.at("held_out_loss", 2), std::nullopt);
}

TEST_F(PlotTest, WhatHoldsNoMetricsIsNamed) {
  EXPECT_THAT(error_of([&] { RunMetrics(folder_ / "none"); }), HasSubstr("none does not exist"));
  fs::create_directories(folder_ / "empty");
  EXPECT_THAT(error_of([&] { RunMetrics(folder_ / "empty"); }),
              HasSubstr("empty holds no metrics"));
  EXPECT_THAT(error_of([&] { run("begun", "{\"step\":1,"); }),
              AllOf(HasSubstr("begun/metrics.jsonl"), HasSubstr("no step yet")));
  EXPECT_THAT(error_of([&] { run("other", "text\n"); }), HasSubstr("other/metrics.jsonl:1"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_THAT(error_of([&] {
                run("deep", "{\"step\":1,\"b\":" + deep + "1" + std::string(100001, '}') + "\n");
              }),
              HasSubstr("nested deeper"));
}

TEST_F(PlotTest, RunsOfOneNameAreCalledByTheirPaths) {
  const auto svg = draw({steps("a/run", 3), steps("b/run", 3)});
  EXPECT_THAT(texts(svg), AllOf(Contains(::testing::EndsWith("a/run/metrics.jsonl")),
                                Contains(::testing::EndsWith("b/run/metrics.jsonl"))));
}

RC_GTEST_FIXTURE_PROP(PlotTest, AnyNameAndAnyNumbersGiveValidXml, ()) {
  const auto name = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  std::string text;
  for (int step = 1; step <= 4; ++step) {
    const double value = *rc::gen::inRange(-9, 9) * std::pow(10.0, *rc::gen::inRange(-320, 308));
    text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, std::isfinite(value) ? value : 0);
  }
  const RunMetrics numbers = run("numbers", text + "{\"step\":5,\"loss\":1}\n");
  const auto svg = draw({numbers}, {.logarithmic_y = *rc::gen::arbitrary<bool>(), .title = name});
  RC_ASSERT(svg[0].name == "svg");
}

TEST(Svg, TextIsEscapedAndCharactersThatXmlDoesNotKnowAreReplaced) {
  EXPECT_EQ(xml_text("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(xml_text(std::string_view("a\0b\x1b\xff", 5)), "a\uFFFDb\uFFFD\uFFFD");
  EXPECT_EQ(xml_text("schön \uFFFE"), "schön \uFFFD");
  EXPECT_EQ(shortened("äbcdefgh", 5), "äb…gh");
  EXPECT_EQ(shortened("äbcde", 5), "äbcde");
  EXPECT_EQ(character_count("äb…"), 3U);
  EXPECT_EQ(pixels(-0.01), "0");
  EXPECT_EQ(pixels(12.34), "12.3");
}

}  // namespace
}  // namespace tessera
