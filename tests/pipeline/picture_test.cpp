#include "pipeline/picture.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/words.h"
#include "pipeline/clock.h"
#include "pipeline/generate.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::XmlElement;

/// Whether an element is the box of an action: a rectangle of a row, but not its grey ground.
bool is_box(const XmlElement& element) {
  return element.name == "rect" && element.attributes.at("height") == "20" &&
         element.attributes.at("fill") != "#eee";
}

std::string picture_of(ScheduleKind kind, const PipelineShape& shape) {
  const PipelineSchedule schedule = generate(kind, shape);
  return draw(schedule, measure(schedule, {}));
}

TEST(PipelinePicture, HasABoxWithItsNumberForEachAction) {
  const std::string svg = picture_of(ScheduleKind::one_forward_one_backward, {2, 2, 3, {}});
  int boxes = 0;
  std::map<std::string, int> texts;
  std::set<std::string> colours;
  for (const XmlElement& element : testing::parse_xml(svg)) {
    if (element.name == "text") ++texts[element.text];
    if (!is_box(element)) continue;
    ++boxes;
    colours.insert(element.attributes.at("fill"));
  }
  EXPECT_EQ(boxes, 12);
  for (const char* micro_batch : {"0", "1", "2"}) EXPECT_EQ(texts[micro_batch], 4);
  EXPECT_EQ(colours.size(), 2U);
  for (const char* text :
       {"rank 0", "rank 1", "forward", "backward", "peak 2, idle 25.0 %", "peak 1, idle 25.0 %",
        "1f1b: 2 ranks, 3 micro-batches, bubble 33.3 %"}) {
    EXPECT_EQ(texts[text], 1) << text;
  }
  EXPECT_EQ(texts["weight gradients"], 0);
  EXPECT_EQ(svg, picture_of(ScheduleKind::one_forward_one_backward, {2, 2, 3, {}}));
}

TEST(PipelinePicture, ShowsChunksByShade) {
  std::set<std::string> colours;
  const std::string svg = picture_of(ScheduleKind::interleaved, {2, 6, 4, {}});
  for (const XmlElement& element : testing::parse_xml(svg)) {
    if (is_box(element)) colours.insert(element.attributes.at("fill"));
  }
  EXPECT_EQ(colours.size(), 6U);
}

TEST(PipelinePicture, BoxesOfARankFollowEachOtherWithinTheRow) {
  const std::string svg = picture_of(ScheduleKind::zero_bubble_v, {4, 8, 24, {}});
  double width = 0;
  std::map<std::string, double> ends;  // by row
  for (const XmlElement& element : testing::parse_xml(svg)) {
    if (element.name == "svg") width = std::stod(element.attributes.at("width"));
    if (!is_box(element)) continue;
    double& end = ends[element.attributes.at("y")];
    const double x = std::stod(element.attributes.at("x"));
    EXPECT_GE(x, end - 0.2);
    end = x + std::stod(element.attributes.at("width"));
    EXPECT_LT(end, width);
  }
  EXPECT_EQ(ends.size(), 4U);
}

// docs/pipelines.md compares the schedules over 4 stages, each of whose whole layers take one unit
// of time for the forward, the input gradients and the weight gradients.
struct PageSchedule {
  ScheduleKind kind;
  PipelineShape shape;
};

std::vector<PageSchedule> page_schedules() {
  using enum ScheduleKind;
  return {{all_forward_all_backward, {4, 4, 8, {}}},
          {one_forward_one_backward, {4, 4, 8, {}}},
          {interleaved, {4, 8, 8, {}}},
          {flexible, {4, 8, 10, 5}},
          {zero_bubble_h1, {4, 4, 8, {}}},
          {zero_bubble_v, {4, 8, 8, {}}},
          {dualpipe_v, {4, 8, 8, {}}}};
}

ScheduleFigures page_figures(const PageSchedule& of, const PipelineSchedule& schedule) {
  const double share = static_cast<double>(of.shape.ranks) / of.shape.chunks;
  return measure(schedule, {.chunks = {{share, share, share}}});
}

/// The row of a schedule in the page's table: the bubble, and the peak of each rank in stages.
std::string page_row(const PageSchedule& of) {
  const PipelineSchedule schedule = generate(of.kind, of.shape);
  const ScheduleFigures figures = page_figures(of, schedule);
  std::vector<std::string> peaks;
  for (const RankFigures& rank : figures.ranks) {
    peaks.push_back(fmt::format(
        "{:g}", static_cast<double>(rank.peak_in_flight) * of.shape.ranks / of.shape.chunks));
  }
  return fmt::format("| `{}` | {} | {} | {:.1f} % | {} |", word(of.kind),
                     of.shape.chunks / of.shape.ranks, of.shape.micro_batches, 100 * figures.bubble,
                     fmt::join(peaks, ", "));
}

/// The pictures are written anew where TESSERA_WRITE_PICTURES is set.
TEST(PipelinePage, HasTheFiguresAndThePicturesOfTheSchedules) {
  const fs::path docs = fs::path(TESSERA_SOURCE) / "docs";
  const std::string page = read_file(docs / "pipelines.md");
  for (const PageSchedule& of : page_schedules()) {
    EXPECT_THAT(page, HasSubstr(page_row(of)));
    const std::string name = fmt::format("pipelines/{}.svg", word(of.kind));
    EXPECT_THAT(page, HasSubstr(name));
    const PipelineSchedule schedule = generate(of.kind, of.shape);
    const std::string svg = draw(schedule, page_figures(of, schedule));
    if (std::getenv("TESSERA_WRITE_PICTURES") != nullptr) write_file(docs / name, svg);
    EXPECT_TRUE(read_file(docs / name) == svg)
        << name << " shows another schedule; write it with TESSERA_WRITE_PICTURES=1";
  }
}

}  // namespace
}  // namespace tessera
