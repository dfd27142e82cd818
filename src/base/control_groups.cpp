#include "base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

/// A line of /proc/self/mountinfo: a mounted file system.
struct Mount {
  std::string root;    // the folder of the file system that is mounted
  std::string folder;  // the folder at which it is mounted
  std::string type;
  std::string options;
};

/// A control group of this process, as /proc/self/cgroup names it.
struct Group {
  bool second_version = false;
  std::string controllers;  // with commas between them; empty in version 2
  std::string path;
};

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// Returns the text with the characters that mountinfo writes as a backslash and three octal
/// digits.
std::string without_escapes(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 3, code, 8).ptr == &text[i + 1] + 3) {
      result += static_cast<char>(code);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::vector<Mount> mounts_of_groups(const fs::path& root) {
  std::vector<Mount> mounts;
  for (const std::string& line : lines_of(root / "proc/self/mountinfo")) {
    const size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream first(line.substr(0, separator)), second(line.substr(separator + 3));
    std::string id, parent, device, source;
    Mount mount;
    first >> id >> parent >> device >> mount.root >> mount.folder;
    second >> mount.type >> source >> mount.options;
    if (mount.type != "cgroup" && mount.type != "cgroup2") continue;
    mount.root = without_escapes(mount.root);
    mount.folder = without_escapes(mount.folder);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::vector<Group> groups_of_process(const fs::path& root) {
  std::vector<Group> groups;
  for (const std::string& line : lines_of(root / "proc/self/cgroup")) {  // "4:cpu,cpuacct:/jobs/7"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    groups.push_back({.second_version = controllers.empty(),
                      .controllers = controllers,
                      .path = line.substr(second + 1)});
  }
  return groups;
}

/// Returns whether `word` is one of the words of a comma-separated list.
bool lists(std::string_view list, std::string_view word) {
  std::istringstream words{std::string(list)};
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

/// Returns the folders of a group and of its parent groups, up to the mounted folder. Returns the
/// mounted folder alone if the mount shows another part of the tree, as in some containers.
std::vector<fs::path> folders_of(const Group& group, const Mount& mount) {
  const fs::path top = mount.folder;
  const fs::path within = fs::path(group.path).lexically_relative(mount.root);
  std::vector<fs::path> folders;
  if (!within.empty() && *within.begin() != "..") {
    for (fs::path each = within; !each.empty() && each != "."; each = each.parent_path()) {
      folders.push_back(top / each);
    }
  }
  folders.push_back(top);
  return folders;
}

template <typename Number>
std::optional<Number> number_of(std::string_view word) {
  Number number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return std::nullopt;
  return number;
}

/// Returns the words of a file's first line.
std::vector<std::string> first_words(const fs::path& path) {
  const std::vector<std::string> lines = lines_of(path);
  std::vector<std::string> words;
  if (lines.empty()) return words;
  std::istringstream line(lines[0]);
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

std::optional<int64_t> bytes_in(const fs::path& path) {
  const std::vector<std::string> words = first_words(path);
  return words.size() == 1 ? number_of<int64_t>(words[0]) : std::nullopt;
}

/// Returns the number of one key in memory.stat, whose lines each hold a key and a number.
std::optional<int64_t> in_statistics(const fs::path& path, const std::string& key) {
  for (const std::string& line : lines_of(path)) {
    if (line.starts_with(key + " ")) return number_of<int64_t>(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

/// Returns the limit that memory.stat of version 1 gives for all parent groups together, including
/// those that are not visible.
std::optional<int64_t> hierarchical_limit(const fs::path& statistics) {
  return in_statistics(statistics, "hierarchical_memory_limit");
}

/// Returns the bytes that a group uses and cannot give back at once.
int64_t held_bytes(const fs::path& group, bool second_version) {
  const int64_t all =
      bytes_in(group / (second_version ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  int64_t files = 0;
  for (const std::string key : {"inactive_file", "active_file"}) {
    files +=
        in_statistics(group / "memory.stat", second_version ? key : "total_" + key).value_or(0);
  }
  return std::max<int64_t>(all - files, 0);
}

std::optional<double> ratio(const std::optional<double>& quota,
                            const std::optional<double>& period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

/// Returns the cores in a cpu.max file: "150000 100000" is 1.5, "max 100000" is no limit.
std::optional<double> cores_in(const fs::path& path) {
  const std::vector<std::string> words = first_words(path);
  if (words.size() != 2) return std::nullopt;
  return ratio(number_of<double>(words[0]), number_of<double>(words[1]));
}

/// Calls visit(folder, second_version) for all groups of the process that may limit it: those of
/// version 1 with the given controller, and all of version 2.
template <typename Visit>
void for_groups(const fs::path& root, std::string_view controller, Visit&& visit) {
  const std::vector<Mount> mounts = mounts_of_groups(root);
  for (const Group& group : groups_of_process(root)) {
    if (!group.second_version && !lists(group.controllers, controller)) continue;
    for (const Mount& mount : mounts) {
      const bool same = group.second_version
                            ? mount.type == "cgroup2"
                            : mount.type == "cgroup" && lists(mount.options, controller);
      if (!same) continue;
      for (const fs::path& folder : folders_of(group, mount)) visit(folder, group.second_version);
    }
  }
}

/// Keeps the lowest limit.
template <typename Number>
void lower(std::optional<GroupLimit<Number>>& lowest, const std::optional<Number>& found,
           const fs::path& file) {
  if (found && (!lowest || *found < lowest->value)) lowest = {*found, file.string()};
}

/// Keeps the lowest limit of memory in the files of one group.
void lower_by_group(std::optional<GroupLimit<int64_t>>& lowest, const fs::path& root,
                    const fs::path& folder, bool second_version) {
  const fs::path here = root / folder.relative_path();
  if (second_version) {
    for (const char* name : {"memory.max", "memory.high"}) {
      lower(lowest, bytes_in(here / name), folder / name);
    }
  } else {
    const char* const own = "memory.limit_in_bytes";
    lower(lowest, bytes_in(here / own), folder / own);
    lower(lowest, hierarchical_limit(here / "memory.stat"), folder / "memory.stat");
  }
}

}  // namespace

std::optional<GroupLimit<int64_t>> memory_of_control_groups(const fs::path& root) {
  std::optional<GroupLimit<int64_t>> lowest;
  for_groups(root, "memory", [&](const fs::path& folder, bool second_version) {
    lower_by_group(lowest, root, folder, second_version);
  });
  return lowest;
}

std::optional<int64_t> free_memory_of_control_groups(const fs::path& root) {
  std::optional<int64_t> least;
  for_groups(root, "memory", [&](const fs::path& folder, bool second_version) {
    std::optional<GroupLimit<int64_t>> limit;
    lower_by_group(limit, root, folder, second_version);
    if (!limit) return;
    const int64_t held = held_bytes(root / folder.relative_path(), second_version);
    const int64_t left = std::max<int64_t>(limit->value - held, 0);
    if (!least || left < *least) least = left;
  });
  return least;
}

std::optional<GroupLimit<double>> cores_of_control_groups(const fs::path& root) {
  std::optional<GroupLimit<double>> lowest;
  for_groups(root, "cpu", [&](const fs::path& folder, bool second_version) {
    const fs::path here = root / folder.relative_path();
    if (second_version) {
      lower(lowest, cores_in(here / "cpu.max"), folder / "cpu.max");
    } else {
      const auto number = [&](const char* name) -> std::optional<double> {
        const std::vector<std::string> words = first_words(here / name);
        return words.size() == 1 ? number_of<double>(words[0]) : std::nullopt;
      };
      lower(lowest, ratio(number("cpu.cfs_quota_us"), number("cpu.cfs_period_us")),
            folder / "cpu.cfs_quota_us");
    }
  });
  return lowest;
}

}  // namespace tessera
