#include "cli/file_options.h"

#include <system_error>
#include <vector>

#include "base/error.h"
#include "cli/parse_arguments.h"

namespace tessera {
namespace {

/// A name on the command line, or the default of an option that was left out.
struct NamedFile {
  std::string option;
  std::string path;
  bool written = false;
};

std::vector<NamedFile> files_of(const CLI::App& command) {
  std::vector<NamedFile> files;
  for (const CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    const bool written = type.starts_with(kOutputType);
    if (!written && !type.starts_with(kInputType)) continue;
    std::vector<std::string> paths = option->results();
    if (paths.empty() && !option->get_default_str().empty()) {
      paths.push_back(option->get_default_str());
    }
    for (const std::string& path : paths) {
      if (written && path == "-") continue;
      files.push_back({option->get_name(/*positional=*/option->get_positional()), path, written});
    }
  }
  return files;
}

/// Returns whether two names lead to the same file, which need not exist yet.
bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code none;  // of a file that does not exist
  return fs::equivalent(a, b, none) || canonical_path(a) == canonical_path(b);
}

}  // namespace

CLI::Option* takes_file(CLI::Option* option, const char* type) {
  const auto problem = [](const std::string& name) {
    return name.empty() ? "the name is empty; expected that of a file or folder" : "";
  };
  return option->type_name(type)->check(CLI::Validator(problem, ""));
}

CLI::Validator existing_file() { return CLI::ExistingFile.description(""); }

void refuse_same_files(const CLI::App& app) {
  const std::vector<NamedFile> files = files_of(chosen_command(app));
  for (size_t i = 0; i < files.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!files[i].written && !files[j].written) continue;
      if (!is_same_file(files[i].path, files[j].path)) continue;
      const bool last = files[i].written;  // the one that is to change
      const NamedFile& output = last ? files[i] : files[j];
      const NamedFile& other = last ? files[j] : files[i];
      throw Error("{} is {}, the file of {} ({}), and would overwrite it; name another file",
                  output.option, output.path, other.option, other.path);
    }
  }
}

void refuse_same_file(const std::string& option, const fs::path& output, const fs::path& input) {
  if (!is_same_file(output, input)) return;
  throw Error("{} is {}, and would overwrite {}, which is read; name another file", option,
              output.string(), input.string());
}

}  // namespace tessera
