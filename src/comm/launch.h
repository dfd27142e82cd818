#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tessera {

/// Says where the processes meet without MPI: the first rank's machine and a port.
inline constexpr const char* kAddressVariable = "TESSERA_ADDRESS";

/// How a launcher started this process: as one of several.
struct Launch {
  std::string launcher;  ///< "mpirun", "srun"
  int processes = 1;
  int rank = 0;  ///< this process's number; 0 if the environment does not say it
  /// The value of kAddressVariable. Without it they meet by MPI.
  std::optional<std::string> address = {};
};

/// What started this process, as the environment says. Nothing if it was not started as one of
/// several. Throws Error that names the variable if its value is no number of processes, or if
/// there is an address and no rank for this process. `variable` returns the value of a variable of
/// the environment, or null.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable);
std::optional<Launch> find_launch();

}  // namespace tessera
