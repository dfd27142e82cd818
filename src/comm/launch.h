#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tessera {

/// Says where the processes meet without MPI: the first rank's machine and a port.
inline constexpr const char* kAddressVariable = "TESSERA_ADDRESS";

/// The secret of a run, by which its processes know each other without MPI.
inline constexpr const char* kTokenVariable = "TESSERA_TOKEN";
/// The command that makes such a secret.
inline constexpr const char* kTokenCommand = "openssl rand -hex 32";

/// How a launcher started this process: as one of several.
struct Launch {
  std::string launcher;  ///< "mpirun", "srun"
  int processes = 1;
  int rank = 0;  ///< this process's number; 0 if the environment does not say it
  /// The value of kAddressVariable. Without it they meet by MPI.
  std::optional<std::string> address = {};
  /// The value of kTokenVariable, where there is an address.
  std::optional<std::string> token = {};
};

/// What started this process, as the environment says. Nothing if it was not started as one of
/// several. Throws Error that names the variable if its value is no number of processes, or if
/// there is an address and no rank for this process, or a token that can be guessed. `variable`
/// returns the value of a variable of the environment, or null.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable);
std::optional<Launch> find_launch();

}  // namespace tessera
