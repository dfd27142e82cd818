#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/file.h"

namespace tessera {

// Options and positional arguments that name files. The types of their values are marks: the help
// shows them, the shells complete them with names of files, and refuse_same_files() finds them.

inline constexpr const char* kInputType = "FILE";           ///< a file or a folder that is read
inline constexpr const char* kOutputType = "OUTPUT";        ///< a file that is written
inline constexpr const char* kOutputFolderType = "FOLDER";  ///< a folder that is written

/// Makes an option one that takes a name of this type. It refuses the empty name.
CLI::Option* takes_file(CLI::Option* option, const char* type);

/// Adds an option that names what a command reads: a file or a folder, or several in a vector.
template <typename Paths>
CLI::Option* add_input(CLI::App& command, const std::string& name, Paths& paths,
                       const std::string& help) {
  return takes_file(command.add_option(name, paths, help), kInputType);
}

/// Adds an option that names a file that a command writes.
template <typename Path>
CLI::Option* add_output(CLI::App& command, const std::string& name, Path& path,
                        const std::string& help) {
  return takes_file(command.add_option(name, path, help), kOutputType);
}

/// Adds an option that names a folder that a command writes.
template <typename Path>
CLI::Option* add_output_folder(CLI::App& command, const std::string& name, Path& path,
                               const std::string& help) {
  return takes_file(command.add_option(name, path, help), kOutputFolderType);
}

/// Returns a check that there is a file of that name.
CLI::Validator existing_file();

/// Throws Error if a file that the command on the command line writes is also one that it reads or
/// writes for another option, under whatever name. The output "-" is standard output.
void refuse_same_files(const CLI::App& app);

/// Throws Error if an option's output is a file that the command reads.
void refuse_same_file(const std::string& option, const fs::path& output, const fs::path& input);

}  // namespace tessera
