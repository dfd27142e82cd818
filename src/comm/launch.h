#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tessera {

/// The variable with the address at which the processes meet without MPI: the first rank's machine
/// and a port.
inline constexpr const char* kAddressVariable = "TESSERA_ADDRESS";

/// The variable with the secret of a run, by which its processes recognize each other without MPI.
inline constexpr const char* kTokenVariable = "TESSERA_TOKEN";
/// A command that makes such a secret.
inline constexpr const char* kTokenCommand = "openssl rand -hex 32";

/// How a launcher (mpirun, srun, or the user by hand) started this process as one of several.
struct Launch {
  std::string launcher;  ///< "mpirun", "srun"
  int processes = 1;
  int rank = 0;  ///< this process's number; 0 if the environment does not say it
  /// The value of kAddressVariable. Without it the processes meet by MPI.
  std::optional<std::string> address = {};
  /// The value of kTokenVariable, where there is an address.
  std::optional<std::string> token = {};
};

/// Returns the launch that started this process, as the environment describes it; none if it was
/// not started as one of several. Throws Error that names the variable if its value is not a number
/// of processes, if there is an address but no rank for this process, or if the token can be
/// guessed. `variable` returns the value of a variable of the environment, or null.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable);
std::optional<Launch> find_launch();

}  // namespace tessera
