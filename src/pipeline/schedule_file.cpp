#include "pipeline/schedule_file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/strict_json.h"
#include "pipeline/place_messages.h"
#include "pipeline/validate.h"

namespace tessera {
namespace {

constexpr std::string_view kFirstLine = "tessera pipeline schedule 1";
constexpr std::string_view kMicroBatches = "micro-batches";
constexpr std::string_view kChunks = "chunks";
constexpr std::string_view kRank = "rank";
constexpr std::string_view kLetters = "FBIW";  // by ActionKind
constexpr int kMost = 1 << 20;                 // chunks, ranks and micro-batches

/// Takes the first word off a line; empty if there is none.
std::string_view take_word(std::string_view& line) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = line.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return line = {};
  const size_t end = std::min(line.find_first_of(kSpace, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

/// Returns a number of digits alone, or none.
std::optional<int> number_of(std::string_view digits) {
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && number >= 0 && digits.front() != '-' && number < kMost ? std::optional(number)
                                                                         : std::nullopt;
}

/// Returns the action of a word such as "F0.3", or none.
std::optional<ChunkAction> action_of(std::string_view word) {
  const size_t letter = word.empty() ? std::string_view::npos : kLetters.find(word.front());
  const size_t dot = word.find('.');
  if (letter == std::string_view::npos || dot == std::string_view::npos) return std::nullopt;
  const auto chunk = number_of(word.substr(1, dot - 1));
  const auto micro_batch = number_of(word.substr(dot + 1));
  if (!chunk || !micro_batch) return std::nullopt;
  return ChunkAction{static_cast<ActionKind>(letter), *chunk, *micro_batch};
}

/// Reads a text from its first line to its last.
class ScheduleParser {
 public:
  ScheduleParser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  ActionLists parse() {
    lists_.name = origin_;
    require_line(kFirstLine);
    if (!take_word(line_).empty()) refuse(line_words(), fmt::format("\"{}\"", kFirstLine));
    require_line(kMicroBatches);
    lists_.micro_batches = number("the number of micro-batches", 1);
    require_end();
    require_line(kChunks);
    read_chunks();
    while (next_line()) read_rank();
    if (lists_.ranks.size() != static_cast<size_t>(lists_.placement.ranks)) {
      refuse(fmt::format("lists of {} ranks", lists_.ranks.size()),
             fmt::format("one for each of the {} ranks that have chunks", lists_.placement.ranks));
    }
    return std::move(lists_);
  }

 private:
  [[noreturn]] void refuse(const std::string& found, const std::string& expected) const {
    throw Error("{}, line {}: found {}, expected {}", origin_, number_of_line_, found, expected);
  }
  std::string line_words() const {
    return whole_line_.empty() ? "nothing" : in_quotes(whole_line_);
  }

  /// Goes to the next line that says anything. Returns false at the end of the text.
  bool next_line() {
    while (!text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      line_ = text_.substr(0, std::min(text_.find('#'), end));
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_of_line_;
      whole_line_ = line_;
      std::string_view rest = line_;
      if (!take_word(rest).empty()) return true;
    }
    whole_line_ = line_ = {};
    return false;
  }

  /// Goes to the next line, which must begin with these words, and takes them.
  void require_line(std::string_view words) {
    const bool any = next_line();
    const std::string expected = fmt::format("a line that begins with \"{}\"", words);
    if (!any) refuse("the end of the file", expected);
    while (!words.empty()) {
      if (take_word(line_) != take_word(words)) refuse(line_words(), expected);
      words.remove_prefix(std::min(words.find_first_not_of(' '), words.size()));
    }
  }

  int number(const std::string& expected, int least) {
    const std::string_view word = take_word(line_);
    const auto value = number_of(word);
    if (!value || *value < least) {
      refuse(word.empty() ? "the end of the line" : in_quotes(word),
             fmt::format("{}, a whole number from {} to {}", expected, least, kMost - 1));
    }
    return *value;
  }

  void require_end() {
    const std::string_view word = take_word(line_);
    if (!word.empty()) refuse(in_quotes(word), "the end of the line");
  }

  void read_chunks() {
    ChunkPlacement& placement = lists_.placement;
    for (std::string_view rest = line_; !take_word(rest).empty(); rest = line_) {
      placement.rank_of_chunk.push_back(number("the rank of a chunk", 0));
      placement.ranks = std::max(placement.ranks, placement.rank_of_chunk.back() + 1);
    }
    if (placement.rank_of_chunk.empty()) refuse("no chunk", "the rank of each chunk");
    for (int rank = 0; rank < placement.ranks; ++rank) {
      if (static_cast<size_t>(placement.ranks) > placement.rank_of_chunk.size() ||
          placement.chunks_of(rank).empty()) {
        refuse(fmt::format("rank {} as the last of {} chunks", placement.ranks - 1,
                           placement.rank_of_chunk.size()),
               "a chunk for every rank from 0 on");
      }
    }
  }

  void read_rank() {
    if (take_word(line_) != kRank) refuse(line_words(), "a line that begins with \"rank\"");
    const std::string_view word = take_word(line_);
    const auto rank =
        word.ends_with(':') ? number_of(word.substr(0, word.size() - 1)) : std::nullopt;
    const size_t next = lists_.ranks.size();
    const bool further = rank && next > 0 && static_cast<size_t>(*rank) == next - 1;
    const bool first = rank && static_cast<size_t>(*rank) == next && *rank < lists_.placement.ranks;
    if (!further && !first) refuse(line_words(), expected_rank());
    if (first) lists_.ranks.emplace_back();
    for (std::string_view rest = line_; !take_word(rest).empty(); rest = line_) read_action();
  }

  std::string expected_rank() const {
    const size_t next = lists_.ranks.size();
    const bool all = next == static_cast<size_t>(lists_.placement.ranks);
    if (all) return fmt::format("the end of the file, after rank {}, the last one", next - 1);
    return fmt::format("\"rank {}: \" and its actions", next);
  }

  void read_action() {
    const std::string_view word = take_word(line_);
    const auto action = action_of(word);
    if (!action) {
      refuse(in_quotes(word),
             "an action: F, B, I or W, the chunk, a dot and the micro-batch, such as F0.3");
    }
    const int chunks = lists_.placement.chunks();
    if (action->chunk >= chunks) {
      refuse(in_quotes(word), fmt::format("a chunk from 0 to {}", chunks - 1));
    }
    if (action->micro_batch >= lists_.micro_batches) {
      refuse(in_quotes(word), fmt::format("a micro-batch from 0 to {}", lists_.micro_batches - 1));
    }
    lists_.ranks.back().push_back(*action);
  }

  std::string_view text_;
  const std::string& origin_;
  std::string_view line_;        // what is left of the current line
  std::string_view whole_line_;  // the current line, without its comment
  int number_of_line_ = 0;
  ActionLists lists_;
};

}  // namespace

std::string schedule_text(const ActionLists& lists) {
  std::string text =
      fmt::format("{}\n{} {}\n{} {}\n", kFirstLine, kMicroBatches, lists.micro_batches, kChunks,
                  fmt::join(lists.placement.rank_of_chunk, " "));
  for (size_t rank = 0; rank < lists.ranks.size(); ++rank) {
    text += fmt::format("{} {}:", kRank, rank);
    for (const ChunkAction& action : lists.ranks[rank]) {
      text += fmt::format(" {}{}.{}", kLetters[static_cast<size_t>(action.kind)], action.chunk,
                          action.micro_batch);
    }
    text += "\n";
  }
  return text;
}

ActionLists parse_schedule(std::string_view text, const std::string& origin) {
  return ScheduleParser(text, origin).parse();
}

PipelineSchedule read_schedule(const fs::path& path, int ranks, std::optional<int> micro_batches) {
  ActionLists lists = parse_schedule(read_file(path), path.string());
  const int expected = micro_batches.value_or(lists.micro_batches);
  if (lists.placement.ranks != ranks || lists.micro_batches != expected) {
    const auto size_text = [&](int stages, int count) {
      return fmt::format("{} stages{}", stages,
                         micro_batches ? fmt::format(" and {} micro-batches", count) : "");
    };
    throw Error("{}: found a schedule for {}, expected one for {}", path.string(),
                size_text(lists.placement.ranks, lists.micro_batches), size_text(ranks, expected));
  }
  PipelineSchedule schedule = place_messages(std::move(lists));
  require_valid(schedule, path.string());
  return schedule;
}

}  // namespace tessera
