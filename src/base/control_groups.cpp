#include "base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

// A process finds its groups in two files. /proc/self/cgroup has a line for each tree of groups
// (one for each set of version 1's controllers, and one for version 2) with the path of the
// process's group in that tree. /proc/self/mountinfo says in which folder a tree is mounted.
// visit_group_folders() joins the two and visits the folders of the process's group and of its
// parent groups. The functions at the end read the limits in the files of these folders.

/// A line of /proc/self/mountinfo: a mounted file system.
struct Mount {
  std::string subtree;     // the part of the tree that is mounted: "/", or the path of a group
  std::string mounted_at;  // the folder in which the system shows that part
  std::string type;
  std::string options;
};

/// A control group of this process, from a line of /proc/self/cgroup: "4:cpu,cpuacct:/jobs/7".
struct Group {
  bool second_version = false;
  std::string controllers;  // with commas between them; empty in version 2
  std::string path;
};

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// Returns the text without mountinfo's escapes: a space is a backslash and three octal digits.
std::string unescape(std::string_view text) {
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

std::vector<Mount> group_mounts(const fs::path& root) {
  std::vector<Mount> mounts;
  for (const std::string& line : read_lines(root / "proc/self/mountinfo")) {
    const size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
    std::string id, parent, device, source;
    Mount mount;
    before >> id >> parent >> device >> mount.subtree >> mount.mounted_at;
    after >> mount.type >> source >> mount.options;
    if (mount.type != "cgroup" && mount.type != "cgroup2") continue;
    mount.subtree = unescape(mount.subtree);
    mount.mounted_at = unescape(mount.mounted_at);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::vector<Group> groups_of_process(const fs::path& root) {
  std::vector<Group> groups;
  for (const std::string& line : read_lines(root / "proc/self/cgroup")) {
    const size_t first_colon = line.find(':');
    const size_t second_colon =
        first_colon == std::string::npos ? first_colon : line.find(':', first_colon + 1);
    if (second_colon == std::string::npos) continue;
    const std::string controllers = line.substr(first_colon + 1, second_colon - first_colon - 1);
    groups.push_back({.second_version = controllers.empty(),
                      .controllers = controllers,
                      .path = line.substr(second_colon + 1)});
  }
  return groups;
}

/// Returns whether a comma-separated list has the entry `wanted`.
bool has_entry(std::string_view list, std::string_view wanted) {
  std::istringstream entries{std::string(list)};
  for (std::string entry; std::getline(entries, entry, ',');) {
    if (entry == wanted) return true;
  }
  return false;
}

/// Returns the folders of a group and of its parent groups, up to the mounted folder. If the mount
/// shows another part of the tree, as in some containers, returns the mounted folder alone.
std::vector<fs::path> group_folders(const Group& group, const Mount& mount) {
  const fs::path mounted = mount.mounted_at;
  const fs::path below_mount = fs::path(group.path).lexically_relative(mount.subtree);
  std::vector<fs::path> folders;
  if (!below_mount.empty() && *below_mount.begin() != "..") {
    for (fs::path part = below_mount; !part.empty() && part != "."; part = part.parent_path()) {
      folders.push_back(mounted / part);
    }
  }
  folders.push_back(mounted);
  return folders;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view word) {
  Number number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return std::nullopt;
  return number;
}

/// Returns the words of a file's first line.
std::vector<std::string> words_of_first_line(const fs::path& path) {
  const std::vector<std::string> lines = read_lines(path);
  std::vector<std::string> words;
  if (lines.empty()) return words;
  std::istringstream line(lines[0]);
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

/// Returns the number that is the only word of a file's first line.
template <typename Number>
std::optional<Number> read_number(const fs::path& path) {
  const std::vector<std::string> words = words_of_first_line(path);
  return words.size() == 1 ? parse_number<Number>(words[0]) : std::nullopt;
}

/// Returns the number of one key in memory.stat, whose lines each hold a key and a number.
std::optional<int64_t> read_statistic(const fs::path& path, const std::string& key) {
  for (const std::string& line : read_lines(path)) {
    if (line.starts_with(key + " ")) return parse_number<int64_t>(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

/// Returns the bytes that a group uses, without the files that the system caches for it and can
/// drop at once.
int64_t bytes_in_use(const fs::path& group, bool second_version) {
  const int64_t charged =
      read_number<int64_t>(group / (second_version ? "memory.current" : "memory.usage_in_bytes"))
          .value_or(0);
  int64_t cached_files = 0;
  for (const std::string key : {"inactive_file", "active_file"}) {
    cached_files +=
        read_statistic(group / "memory.stat", second_version ? key : "total_" + key).value_or(0);
  }
  return std::max<int64_t>(charged - cached_files, 0);
}

/// Returns the cores that a quota of processor time in each period amounts to.
std::optional<double> quota_cores(const std::optional<double>& quota,
                                  const std::optional<double>& period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

/// Returns the cores in a cpu.max file: "150000 100000" is 1.5, "max 100000" is no limit.
std::optional<double> read_cpu_max(const fs::path& path) {
  const std::vector<std::string> words = words_of_first_line(path);
  if (words.size() != 2) return std::nullopt;
  return quota_cores(parse_number<double>(words[0]), parse_number<double>(words[1]));
}

/// Calls visit(folder, second_version) for the folder of each group that may limit the process: the
/// groups of version 1 with this controller, and all groups of version 2.
template <typename Visit>
void visit_group_folders(const fs::path& root, std::string_view controller, Visit&& visit) {
  const std::vector<Mount> mounts = group_mounts(root);
  for (const Group& group : groups_of_process(root)) {
    if (!group.second_version && !has_entry(group.controllers, controller)) continue;
    for (const Mount& mount : mounts) {
      const bool same_tree = group.second_version
                                 ? mount.type == "cgroup2"
                                 : mount.type == "cgroup" && has_entry(mount.options, controller);
      if (!same_tree) continue;
      for (const fs::path& folder : group_folders(group, mount))
        visit(folder, group.second_version);
    }
  }
}

/// Sets `lowest` to the limit that was found in `file`, if there is one and it is lower.
template <typename Number>
void keep_lowest(std::optional<GroupLimit<Number>>& lowest, const std::optional<Number>& found,
                 const fs::path& file) {
  if (found && (!lowest || *found < lowest->value)) lowest = {*found, file.string()};
}

/// Calls keep_lowest() for each limit of memory in the files of the group with this folder.
void keep_lowest_of_group(std::optional<GroupLimit<int64_t>>& lowest, const fs::path& root,
                          const fs::path& folder, bool second_version) {
  const fs::path group = root / folder.relative_path();  // another folder only in tests
  if (second_version) {
    for (const char* name : {"memory.max", "memory.high"}) {
      keep_lowest(lowest, read_number<int64_t>(group / name), folder / name);
    }
  } else {
    const char* const limit = "memory.limit_in_bytes";
    keep_lowest(lowest, read_number<int64_t>(group / limit), folder / limit);
    // This statistic is the lowest limit of the group and all its parents, visible here or not.
    keep_lowest(lowest, read_statistic(group / "memory.stat", "hierarchical_memory_limit"),
                folder / "memory.stat");
  }
}

}  // namespace

std::optional<GroupLimit<int64_t>> memory_of_control_groups(const fs::path& root) {
  std::optional<GroupLimit<int64_t>> lowest;
  visit_group_folders(root, "memory", [&](const fs::path& folder, bool second_version) {
    keep_lowest_of_group(lowest, root, folder, second_version);
  });
  return lowest;
}

std::optional<int64_t> free_memory_of_control_groups(const fs::path& root) {
  std::optional<int64_t> least;
  visit_group_folders(root, "memory", [&](const fs::path& folder, bool second_version) {
    std::optional<GroupLimit<int64_t>> limit;
    keep_lowest_of_group(limit, root, folder, second_version);
    if (!limit) return;
    const int64_t used = bytes_in_use(root / folder.relative_path(), second_version);
    const int64_t unused = std::max<int64_t>(limit->value - used, 0);
    if (!least || unused < *least) least = unused;
  });
  return least;
}

std::optional<GroupLimit<double>> cores_of_control_groups(const fs::path& root) {
  std::optional<GroupLimit<double>> lowest;
  visit_group_folders(root, "cpu", [&](const fs::path& folder, bool second_version) {
    const fs::path group = root / folder.relative_path();
    if (second_version) {
      keep_lowest(lowest, read_cpu_max(group / "cpu.max"), folder / "cpu.max");
    } else {
      keep_lowest(lowest,
                  quota_cores(read_number<double>(group / "cpu.cfs_quota_us"),
                              read_number<double>(group / "cpu.cfs_period_us")),
                  folder / "cpu.cfs_quota_us");
    }
  });
  return lowest;
}

}  // namespace tessera
